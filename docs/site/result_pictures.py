def pictures(text):
    return {}
