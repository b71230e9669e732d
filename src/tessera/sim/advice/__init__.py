"""Which topology should a workload have?"""
