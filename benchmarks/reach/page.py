def rows(quick):
    yield


def write(where):
    pass
