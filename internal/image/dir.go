package image

import "github.com/bermhq/berm/api"

func dirRecipe(path string, _ Options) recipe {
	return recipe{template: path, key: func() (string, error) {
		return "", fail(api.CodeTemplateInvalid, "directory templates are not ready", "use the host template")
	}}
}

func tarRecipe(path string, opt Options, _ *Store) recipe { return dirRecipe(path, opt) }
