"""A fleet in virtual time: what becomes of a workload under a policy, with the router's own code."""
