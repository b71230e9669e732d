"""Which profiles run for a request, and whose winner serves the client?"""
