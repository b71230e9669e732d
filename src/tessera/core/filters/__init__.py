"""Which endpoints may serve this request?"""
