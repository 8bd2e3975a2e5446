package image

// An edge is a name in a directory.
type edge struct {
	dir  *node
	name string
}

// lay puts the tree of a layer on top of t, as an overlay would: directories
// merge, a whiteout takes away, anything else takes the place of what was there.
// Both trees are used up.
func (t *tree) lay(top *tree) error {
	mergeDir(t.root, top.root)
	if t.count = countNodes(t.root); t.count > maxNodes {
		return errTooMany
	}
	return nil
}

func mergeDir(into, top *node) {
	into.takeOver(top)
	for name, kid := range top.kids {
		old := into.kids[name]
		switch {
		case kid.isGone():
			delete(into.kids, name)
		case kid.isDir() && old != nil && old.isDir():
			mergeDir(old, kid)
		case kid.isDir():
			dropGone(kid)
			into.kids[name] = kid
		default:
			into.kids[name] = kid
		}
	}
}

// dropGone takes whiteouts out of a directory that hides nothing.
func dropGone(dir *node) {
	for name, kid := range dir.kids {
		if kid.isGone() {
			delete(dir.kids, name)
		} else if kid.isDir() {
			dropGone(kid)
		}
	}
}

// takeOver gives n the attributes of another directory.
func (n *node) takeOver(o *node) {
	n.mode, n.uid, n.gid, n.mtime, n.nsec = o.mode, o.uid, o.gid, o.mtime, o.nsec
}

func (n *node) sameAs(o *node) bool {
	return n.mode == o.mode && n.uid == o.uid && n.gid == o.gid && n.mtime == o.mtime && n.nsec == o.nsec
}

// countNodes counts names, as tree.put does.
func countNodes(dir *node) int {
	count := 1
	for _, kid := range dir.kids {
		if kid.isDir() {
			count += countNodes(kid)
		} else {
			count++
		}
	}
	return count
}

// clone copies the directories; everything else is shared, so that what is
// still the same node is still the same.
func (t *tree) clone() *tree { return &tree{root: cloneDir(t.root), count: t.count} }

func cloneDir(n *node) *node {
	c := *n
	c.kids = make(map[string]*node, len(n.kids))
	for name, kid := range n.kids {
		if kid.isDir() {
			kid = cloneDir(kid)
		}
		c.kids[name] = kid
	}
	return &c
}

// over returns the layer that turns base into t: what is not there as it is in
// base, and a whiteout for every name that is gone. A file that got a further
// name comes with all its names, so that they stay one file. Content below is
// copied, not referred to: a layer is whole.
func (t *tree) over(base *tree) (*tree, error) {
	changed := map[*node]bool{}
	findChanged(t.root, base.root, changed)
	out := &tree{root: overDir(t.root, base.root, changed)}
	if out.root == nil {
		out.root = newDir(0)
		out.root.takeOver(t.root)
	}
	if out.count = countNodes(out.root); out.count > maxNodes {
		return nil, errTooMany
	}
	return out, nil
}

// kid is the entry of a directory that may be missing or no directory.
func (n *node) kid(name string) *node {
	if n == nil {
		return nil
	}
	return n.kids[name]
}

// findChanged collects the nodes that have a name which base does not have.
func findChanged(dir, base *node, changed map[*node]bool) {
	for name, kid := range dir.kids {
		below := base.kid(name)
		if kid.isDir() {
			findChanged(kid, below, changed)
		} else if kid != below {
			changed[kid] = true
		}
	}
}

func overDir(dir, base *node, changed map[*node]bool) *node {
	if base != nil && !base.isDir() {
		base = nil
	}
	out := newDir(0)
	out.takeOver(dir)
	for name, kid := range dir.kids {
		if kid.isDir() {
			if d := overDir(kid, base.kid(name), changed); d != nil {
				out.kids[name] = d
			}
		} else if changed[kid] {
			out.kids[name] = kid
		}
	}
	if base != nil {
		for name := range base.kids {
			if dir.kids[name] == nil {
				out.kids[name] = newWhiteout()
			}
		}
		if len(out.kids) == 0 && dir.sameAs(base) {
			return nil
		}
	}
	return out
}
