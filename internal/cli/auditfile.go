package cli

import (
	"os"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

// verifyFile proves an exported log.
func verifyFile(name string, head *api.Head) (api.Verification, error) {
	f, err := os.Open(name)
	if err != nil {
		return api.Verification{}, &fault{name, unwrapPath(err).Error(), "berm audit export -o FILE"}
	}
	defer f.Close()
	v, err := audit.Verify(f, head)
	if err != nil {
		return v, &fault{name, unwrapPath(err).Error(), ""}
	}
	return v, nil
}
