"""Sound files of real converters: does the suite accuse any of them, alone or beside its original?"""
