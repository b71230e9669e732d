"""What is a media part, as far as its headers tell? Size and identity; one format a file."""
