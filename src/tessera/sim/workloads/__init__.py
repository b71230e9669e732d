"""What may clients ask? One kind of workload a module."""
