"""Is an optional stage worth it for this request?"""
