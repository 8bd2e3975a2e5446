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
	Keep      bool // Mkdir: what is there gets the mode and the owner; Write: a file that is replaced keeps its mode and owner; TarIn: owners and modes are the archive's
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
	b = appendBool(b, 10, f.Keep)
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
		case 10:
			f.Keep = d.bool()
		}
	}
	return !d.bad
}

// A ProcessRequest is the request of every method on what one Start began;
// each uses the fields it needs.
type ProcessRequest struct {
	ID         string
	Offset     int64 // Attach: of the first byte wanted
	Follow     bool  // Attach: go on until the process has ended
	Signal     int
	Rows, Cols uint16 // a resize, unless both are 0
	CloseStdin bool
}

// Append adds p's encoding to b.
func (p *ProcessRequest) Append(b []byte) []byte {
	b = appendString(b, 1, p.ID)
	b = appendInt(b, 2, p.Offset)
	b = appendBool(b, 3, p.Follow)
	b = appendInt(b, 4, int64(p.Signal))
	b = appendUint(b, 5, uint64(p.Rows))
	b = appendUint(b, 6, uint64(p.Cols))
	return appendBool(b, 7, p.CloseStdin)
}

// Decode reads p from b.
func (p *ProcessRequest) Decode(b []byte) bool {
	*p = ProcessRequest{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			p.ID = d.string()
		case 2:
			p.Offset = d.int64()
		case 3:
			p.Follow = d.bool()
		case 4:
			p.Signal = d.int()
		case 5:
			p.Rows = uint16(d.v)
		case 6:
			p.Cols = uint16(d.v)
		case 7:
			p.CloseStdin = d.bool()
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

// Bounds on what a guest may list.
const (
	maxProcesses = 4096
	maxArgs      = 256
	maxPorts     = 4096
)

// Append adds p's encoding to b.
func (p *ProcessInfo) Append(b []byte) []byte {
	b = appendString(b, 1, p.ID)
	b = appendInt(b, 2, int64(p.PID))
	for _, a := range p.Args {
		b = appendElem(b, 3, a)
	}
	b = appendInt(b, 4, p.StartedNanos)
	b = appendBool(b, 5, p.Running)
	b = appendBool(b, 6, p.Kept)
	b = appendInt(b, 7, p.OutputBytes)
	return appendBytes(b, 8, p.Exit.Append(nil))
}

// Decode reads p from b and refuses what no agent would say.
func (p *ProcessInfo) Decode(b []byte) bool {
	*p = ProcessInfo{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			p.ID = d.string()
		case 2:
			p.PID = d.int()
		case 3:
			if p.Args = append(p.Args, d.string()); len(p.Args) > maxArgs {
				return false
			}
		case 4:
			p.StartedNanos = d.int64()
		case 5:
			p.Running = d.bool()
		case 6:
			p.Kept = d.bool()
		case 7:
			p.OutputBytes = d.int64()
		case 8:
			if !p.Exit.Decode(d.s) {
				return false
			}
		}
	}
	return !d.bad && len(b) <= maxGuestString && p.PID >= 0 && p.OutputBytes >= 0 &&
		(!p.Running || p.Exit.onlySeen())
}

// A DialRequest asks for a connection to a port of the guest's loopback.
type DialRequest struct {
	Port int
}

// Append adds r's encoding to b.
func (r *DialRequest) Append(b []byte) []byte { return appendInt(b, 1, int64(r.Port)) }

// Decode reads r from b.
func (r *DialRequest) Decode(b []byte) bool {
	*r = DialRequest{}
	d := decoder{b: b}
	for d.next() {
		if d.num == 1 {
			r.Port = d.int()
		}
	}
	return !d.bad
}

// A PortsReply lists ports that somebody listens on.
type PortsReply struct {
	Ports []int
}

// Append adds r's encoding to b.
func (r *PortsReply) Append(b []byte) []byte {
	for _, p := range r.Ports {
		b = appendUint(b, 1, uint64(p))
	}
	return b
}

// Decode reads r from b and refuses what is no port, or too many.
func (r *PortsReply) Decode(b []byte) bool {
	*r = PortsReply{}
	d := decoder{b: b}
	for d.next() {
		if d.num == 1 {
			if d.v == 0 || d.v > 65535 || len(r.Ports) >= maxPorts {
				return false
			}
			r.Ports = append(r.Ports, int(d.v))
		}
	}
	return !d.bad
}

// Append adds e's encoding to b.
func (e *FileEvent) Append(b []byte) []byte {
	return appendString(appendString(b, 1, e.Path), 2, e.Op)
}

// Decode reads e from b and refuses what no agent would say.
func (e *FileEvent) Decode(b []byte) bool {
	*e = FileEvent{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			e.Path = d.string()
		case 2:
			e.Op = d.string()
		}
	}
	switch e.Op {
	case OpCreate, OpWrite, OpRemove, OpRename, OpAttrib:
		return !d.bad && len(b) <= maxGuestString && e.Path != "" && e.Path[0] == '/'
	case OpLost:
		return !d.bad && e.Path == ""
	}
	return false
}
