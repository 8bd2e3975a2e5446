package here

// Bounds of one name, on the way in and out.
const (
	maxPath  = 4096
	maxName  = 255
	maxDepth = 128
)

// tmpPrefix begins the names of files that are being written.
const tmpPrefix = ".berm-tmp-"

// BesideName is a name for something that lies in a tree while a run goes on,
// and belongs to none: it neither goes in nor comes out.
func BesideName(name string) string { return tmpPrefix + name }
