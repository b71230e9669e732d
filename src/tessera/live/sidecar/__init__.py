"""How does the routing sidecar before a decode server carry out a flow?"""
