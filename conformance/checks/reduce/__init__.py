"""The smallest model that still fails: nodes, shapes and values are taken away for as long as it does.

``model_trial`` says whether a model of some nodes fails as the whole did, ``model_search`` chooses nodes, shapes and
values, ``model_script`` makes a script and a text of what is left.
"""
