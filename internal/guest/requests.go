package guest

// A FileRequest is the request of every method on files; each uses the fields
// it needs.
type FileRequest struct {
	Path      string // or pattern, or directory
	To        string // Move
	Mode      uint32
	UID, GID  uint32
	Recursive bool
	Depth     int
	Limit     int64 // entries, or bytes
	Paths     []string
}

// Append adds f's encoding to b.
func (f *FileRequest) Append(b []byte) []byte {
	b = appendString(b, 1, f.Path)
	b = appendString(b, 2, f.To)
	b = appendUint(b, 3, uint64(f.Mode))
	b = appendUint(b, 4, uint64(f.UID))
	b = appendUint(b, 5, uint64(f.GID))
	b = appendBool(b, 6, f.Recursive)
	b = appendInt(b, 7, int64(f.Depth))
	b = appendInt(b, 8, f.Limit)
	for _, p := range f.Paths {
		b = appendElem(b, 9, p)
	}
	return b
}

// Decode reads f from b.
func (f *FileRequest) Decode(b []byte) bool {
	*f = FileRequest{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			f.Path = d.string()
		case 2:
			f.To = d.string()
		case 3:
			f.Mode = uint32(d.v)
		case 4:
			f.UID = uint32(d.v)
		case 5:
			f.GID = uint32(d.v)
		case 6:
			f.Recursive = d.bool()
		case 7:
			f.Depth = d.int()
		case 8:
			f.Limit = d.int64()
		case 9:
			f.Paths = append(f.Paths, d.string())
		}
	}
	return !d.bad
}

// A KillRequest ends everything that one Start began.
type KillRequest struct {
	ID string
}

// Append adds k's encoding to b.
func (k *KillRequest) Append(b []byte) []byte { return appendString(b, 1, k.ID) }

// Decode reads k from b.
func (k *KillRequest) Decode(b []byte) bool {
	*k = KillRequest{}
	d := decoder{b: b}
	for d.next() {
		if d.num == 1 {
			k.ID = d.string()
		}
	}
	return !d.bad
}

// A KillReply says how many processes were found and how many resisted.
type KillReply struct {
	Killed, Left int64
}

// Append adds k's encoding to b.
func (k *KillReply) Append(b []byte) []byte {
	return appendInt(appendInt(b, 1, k.Killed), 2, k.Left)
}

// Decode reads k from b.
func (k *KillReply) Decode(b []byte) bool {
	*k = KillReply{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			k.Killed = d.int64()
		case 2:
			k.Left = d.int64()
		}
	}
	return !d.bad && k.Killed >= 0 && k.Left >= 0
}

// Append adds u's encoding to b.
func (u *Usage) Append(b []byte) []byte {
	b = appendInt(b, 1, u.Tasks)
	b = appendInt(b, 2, u.AgentTasks)
	b = appendInt(b, 3, u.MemoryBytes)
	b = appendInt(b, 4, u.MemoryTotal)
	b = appendInt(b, 5, u.DiskBytes)
	b = appendInt(b, 6, u.DiskTotal)
	return appendInt(b, 7, u.Processes)
}

// Decode reads u from b.
func (u *Usage) Decode(b []byte) bool {
	*u = Usage{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			u.Tasks = d.int64()
		case 2:
			u.AgentTasks = d.int64()
		case 3:
			u.MemoryBytes = d.int64()
		case 4:
			u.MemoryTotal = d.int64()
		case 5:
			u.DiskBytes = d.int64()
		case 6:
			u.DiskTotal = d.int64()
		case 7:
			u.Processes = d.int64()
		}
	}
	return !d.bad && min(u.Tasks, u.AgentTasks, u.MemoryBytes, u.MemoryTotal,
		u.DiskBytes, u.DiskTotal, u.Processes) >= 0
}

// Append adds i's encoding to b.
func (i *Identity) Append(b []byte) []byte {
	b = appendString(b, 1, i.Hostname)
	for _, e := range i.Env {
		b = appendElem(b, 2, e)
	}
	b = appendInt(b, 3, i.UnixNanos)
	return appendBytes(b, 4, i.Seed)
}

// Decode reads i from b.
func (i *Identity) Decode(b []byte) bool {
	*i = Identity{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			i.Hostname = d.string()
		case 2:
			i.Env = append(i.Env, d.string())
		case 3:
			i.UnixNanos = d.int64()
		case 4:
			i.Seed = append([]byte(nil), d.s...)
		}
	}
	return !d.bad
}
