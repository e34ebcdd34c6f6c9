"""The smallest model that still fails: nodes, shapes and values are taken away for as long as it does.

``cut`` makes models of some nodes of another, ``trial`` says whether one fails as the whole did, ``search`` chooses
nodes, ``simpler`` shapes and values, ``written`` makes a script and a text of what is left.
"""
