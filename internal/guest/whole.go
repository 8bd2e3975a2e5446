//go:build !weak

package guest

// caught is told of each rule that a guest has broken before the stream to it is
// cut. A build for negative controls (cmd/berm-weak) has weak.go in the place of
// this file, where nobody is prepared for that; no build that anybody gets has.
func caught(error) {}
