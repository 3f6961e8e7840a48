"""From files, flags and Python arguments to one set of settings with an origin on every value.

Belongs here: reading YAML and JSON with positions, the schemas of strategy and deploy files,
patches, the merge, reading a checkpoint's own configuration. Does not belong here: deciding a
layout (that is `plan`).

`load` is the way through: `document` reads sources, `strategy`, `deploy` and `overrides` turn them
into patches, `layering` holds the rules between layers, `merge` merges, `settle` types the result.
`check` is the walker behind all of them.
"""
