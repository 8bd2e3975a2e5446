package api

// HereReport is what `berm run --here` says of the tree that went in.
type HereReport struct {
	Run     string `json:"run"` // for berm diff and berm apply
	Tree    string `json:"tree"`
	Changed int    `json:"changed"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Bytes   int64  `json:"bytes"` // of the files that came out
	// Cut says why the changes are not whole, Lost why there are none.
	Cut  string `json:"cut,omitempty"`
	Lost string `json:"lost,omitempty"`

	Files    int        `json:"files"`    // that went in, folders and links too
	Uploaded int64      `json:"uploaded"` // bytes of files that were sent for this run
	Skipped  []HereSkip `json:"skipped"`  // at most 1000
	// SkippedTruncated says that more was left out than is listed.
	SkippedTruncated bool `json:"skipped_truncated,omitempty"`
}

// HereSkip is one thing of a tree that did not go in.
type HereSkip struct {
	Path string `json:"path"`
	Why  string `json:"why"` // credential, excluded, ignored, special, unreadable, name
}
