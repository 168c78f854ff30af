def report(*a):
    return "", {}
