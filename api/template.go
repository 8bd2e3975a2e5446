package api

import "strings"

// Template is one thing that sandboxes start from.
type Template struct {
	Name      string `json:"name"`
	Resolved  string `json:"resolved,omitempty"` // where Name is an alias
	SizeBytes int64  `json:"size_bytes"`         // of all layers
	CPU       int    `json:"cpu"`
	MemoryMB  int64  `json:"memory_mb"`
	IsGlobal  bool   `json:"is_global"`
	Label     string `json:"label,omitempty"`
	CreatedAt string `json:"created_at,omitempty"`

	// Source says what it was made from: an image reference with its digest, or
	// host, directory, archive, build.
	Source   string          `json:"source,omitempty"`
	Digest   string          `json:"digest,omitempty"`   // of the pulled manifest, sha256:...
	Platform string          `json:"platform,omitempty"` // linux/amd64
	Layers   []TemplateLayer `json:"layers,omitempty"`   // lowest first
	Config   TemplateConfig  `json:"config,omitzero"`
	// Root grants commands the guest's root: user "root" in an exec is allowed,
	// and it is the default where Config.User says so.
	Root bool `json:"root,omitempty"`
	// Notes say what the template has not, of what it was made from.
	Notes []string `json:"notes,omitempty"`
}

// TemplateLayer is one read-only EROFS file that templates share.
type TemplateLayer struct {
	Name      string `json:"name"` // of its content
	SizeBytes int64  `json:"size_bytes"`
}

// TemplateConfig is what an OCI image's configuration says of processes.
type TemplateConfig struct {
	Env        []string `json:"env,omitempty"`  // K=V
	User       string   `json:"user,omitempty"` // as in the image: name or uid, with :group or without; "" is agent
	Workdir    string   `json:"workdir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// TemplateProgress says how far the making of a template is.
type TemplateProgress struct {
	Phase string `json:"phase"`          // resolve, download, verify, unpack, pack, step, ...
	Item  string `json:"item,omitempty"` // what is being worked on: a package, a layer, a step
	Done  int64  `json:"done"`           // bytes, or things where Total is few
	Total int64  `json:"total"`          // 0: not known
}

// BuildRequest asks for a template. Exactly one of From's kinds starts it:
// ImageRef pulls, Debs starts from a distribution's packages, Dockerfile says
// by itself, From names a template. Pips and Npms are installed on top.
type BuildRequest struct {
	Name       string            `json:"name"`
	Replace    bool              `json:"replace,omitempty"` // a template of that name may exist
	ImageRef   string            `json:"image_ref,omitempty"`
	Platform   string            `json:"platform,omitempty"`
	From       string            `json:"from,omitempty"`
	Debs       []string          `json:"debs,omitempty"`
	PlainHTTP  bool              `json:"plain_http,omitempty"` // of ImageRef's registry
	Suite      string            `json:"suite,omitempty"`      // bookworm, noble; "": as this host
	Mirror     string            `json:"mirror,omitempty"`     // URL of the packages; "": as this host
	Keyring    []byte            `json:"keyring,omitempty"`    // OpenPGP keys that may sign them; none: this host's
	Pips       []string          `json:"pips,omitempty"`
	Npms       []string          `json:"npms,omitempty"`
	Dockerfile string            `json:"dockerfile,omitempty"` // its text
	BuildArgs  map[string]string `json:"build_args,omitempty"`
	Config     TemplateConfig    `json:"config,omitzero"`  // laid over what the source says
	Limits     Limits            `json:"limits,omitzero"`  // of the sandboxes that steps run in
	Egress     []string          `json:"egress,omitempty"` // targets that steps may reach beside the presets that they need
	NoCache    bool              `json:"no_cache,omitempty"`
	// Recipe is one that Berm brings along, as code-interpreter; Name is the same
	// where none is given.
	Recipe    string `json:"recipe,omitempty"`
	NoNetwork bool   `json:"no_network,omitempty"` // steps reach nothing at all
}

// States of a Build.
const (
	BuildQueued  = "queued"
	BuildRunning = "running"
	BuildDone    = "done"
	BuildFailed  = "failed"
)

// Build is the making of one template.
type Build struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Error      string            `json:"error,omitempty"`
	Code       string            `json:"code,omitempty"`
	Hint       string            `json:"hint,omitempty"`
	StartedAt  string            `json:"started_at"`
	EndedAt    string            `json:"ended_at,omitempty"`
	Progress   *TemplateProgress `json:"progress,omitempty"`
	Template   *Template         `json:"template,omitempty"` // once done
	SizeMB     int64             `json:"size_mb"`
	CPU        int               `json:"cpu"`
	MemoryMB   int64             `json:"memory_mb"`
	Bytes      int64             `json:"bytes"`
	TenantName string            `json:"owner_workspace,omitempty"`
}

// A WorkTree is an uploaded tree that sandboxes find in /workspace: a chain of
// layers, so that a change costs what changed.
type WorkTree struct {
	WorkspaceID string `json:"workspace_id"`
	Parent      string `json:"parent,omitempty"`
	Layers      int    `json:"layers"`
	SizeBytes   int64  `json:"size_bytes"`
}

// TreePrefix begins the names of workspaces, which are kept as templates are:
// TreePrefix + tenant + "/" + id.
const TreePrefix = "workspace/"

// ValidTemplate says whether something that is made may be called so: letters,
// digits and . _ / : @ -, 128 at most, and no word of the routes.
func ValidTemplate(name string) bool {
	switch name {
	case "", "build", "builds", "import", "pull":
		return false
	}
	if len(name) > 128 || strings.HasPrefix(name, TreePrefix) || strings.ContainsAny(name[:1], "._/:@-") {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if strings.Trim(part, ".") == "" {
			return false // no path
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._/:@-", r)
	})
}
