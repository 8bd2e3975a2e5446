package guest

import "time"

// Methods of a call, as KindOpen carries them.
const (
	MethodStart    = 1
	MethodKill     = 2
	MethodStat     = 3
	MethodList     = 4
	MethodGlob     = 5
	MethodRead     = 6
	MethodWrite    = 7
	MethodMkdir    = 8
	MethodMove     = 9
	MethodRemove   = 10
	MethodTarIn    = 11
	MethodTarOut   = 12
	MethodUsage    = 13
	MethodControl  = 14
	MethodAttach   = 15
	MethodWait     = 16
	MethodProcs    = 17
	MethodTell     = 18
	MethodStdin    = 19
	MethodDial     = 20
	MethodPorts    = 21
	MethodWatch    = 22
	MethodChanges  = 23
	maxGuestString = 16 << 10 // longest string taken from a guest
)

// An Open begins a call.
type Open struct {
	Method int
	Window int    // bytes the host lets the guest send ahead on this stream
	Body   []byte // the method's request
}

// Append adds o's encoding to b.
func (o *Open) Append(b []byte) []byte {
	b = appendInt(b, 1, int64(o.Method))
	b = appendInt(b, 2, int64(o.Window))
	return appendBytes(b, 3, o.Body)
}

// Decode reads o from b, keeping references into it.
func (o *Open) Decode(b []byte) bool {
	*o = Open{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			o.Method = d.int()
		case 2:
			o.Window = d.int()
		case 3:
			o.Body = d.s
		}
	}
	return !d.bad
}

// A Reply ends a call.
type Reply struct {
	Errno int
	Text  string // "" and Errno 0 mean success
	Body  []byte // the method's answer
}

// Append adds r's encoding to b.
func (r *Reply) Append(b []byte) []byte {
	b = appendInt(b, 1, int64(r.Errno))
	b = appendString(b, 2, r.Text)
	return appendBytes(b, 3, r.Body)
}

// Decode reads r from b, keeping references into it.
func (r *Reply) Decode(b []byte) bool {
	*r = Reply{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			r.Errno = d.int()
		case 2:
			r.Text = d.string()
		case 3:
			r.Body = d.s
		}
	}
	return !d.bad && r.Errno >= 0 && r.Errno < 4096 && len(r.Text) <= maxGuestString
}

// A Note is a small thing said to a running process.
type Note struct {
	Signal     int
	Rows, Cols uint16 // a resize, unless both are 0
}

// Append adds n's encoding to b.
func (n *Note) Append(b []byte) []byte {
	b = appendInt(b, 1, int64(n.Signal))
	b = appendUint(b, 2, uint64(n.Rows))
	return appendUint(b, 3, uint64(n.Cols))
}

// Decode reads n from b.
func (n *Note) Decode(b []byte) bool {
	*n = Note{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			n.Signal = d.int()
		case 2:
			n.Rows = uint16(d.v)
		case 3:
			n.Cols = uint16(d.v)
		}
	}
	return !d.bad
}

// Append adds h's encoding to b.
func (h *Hello) Append(b []byte) []byte {
	b = appendInt(b, 1, int64(h.Version))
	b = appendString(b, 2, h.Agent)
	b = appendString(b, 3, h.Boot.Hostname)
	b = appendString(b, 4, h.Boot.Kernel)
	b = appendInt(b, 5, h.Boot.StartNanos)
	return appendInt(b, 6, int64(h.Boot.PID))
}

// Decode reads h from b.
func (h *Hello) Decode(b []byte) bool {
	*h = Hello{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			h.Version = d.int()
		case 2:
			h.Agent = d.string()
		case 3:
			h.Boot.Hostname = d.string()
		case 4:
			h.Boot.Kernel = d.string()
		case 5:
			h.Boot.StartNanos = d.int64()
		case 6:
			h.Boot.PID = d.int()
		}
	}
	return !d.bad && len(b) <= maxGuestString
}

// Append adds s's encoding to b.
func (s *Start) Append(b []byte) []byte {
	b = appendString(b, 1, s.ID)
	for _, a := range s.Args {
		b = appendElem(b, 2, a)
	}
	for _, e := range s.Env {
		b = appendElem(b, 3, e)
	}
	b = appendString(b, 4, s.Dir)
	b = appendUint(b, 5, uint64(s.UID))
	b = appendUint(b, 6, uint64(s.GID))
	b = appendBool(b, 7, s.Stdin)
	b = appendBool(b, 8, s.TTY)
	b = appendUint(b, 9, uint64(s.Rows))
	b = appendUint(b, 10, uint64(s.Cols))
	b = appendInt(b, 11, s.Pids)
	b = appendInt(b, 12, s.MemoryBytes)
	b = appendInt(b, 13, s.Keep)
	b = appendInt(b, 14, s.TimeoutMS)
	b = appendInt(b, 15, s.Flood)
	return appendBool(b, 16, s.Hold)
}

// Decode reads s from b.
func (s *Start) Decode(b []byte) bool {
	*s = Start{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			s.ID = d.string()
		case 2:
			s.Args = append(s.Args, d.string())
		case 3:
			s.Env = append(s.Env, d.string())
		case 4:
			s.Dir = d.string()
		case 5:
			s.UID = uint32(d.v)
		case 6:
			s.GID = uint32(d.v)
		case 7:
			s.Stdin = d.bool()
		case 8:
			s.TTY = d.bool()
		case 9:
			s.Rows = uint16(d.v)
		case 10:
			s.Cols = uint16(d.v)
		case 11:
			s.Pids = d.int64()
		case 12:
			s.MemoryBytes = d.int64()
		case 13:
			s.Keep = d.int64()
		case 14:
			s.TimeoutMS = d.int64()
		case 15:
			s.Flood = d.int64()
		case 16:
			s.Hold = d.bool()
		}
	}
	return !d.bad
}

// Append adds e's encoding to b.
func (e *Exit) Append(b []byte) []byte {
	b = appendString(b, 1, e.NotStarted)
	b = appendInt(b, 2, int64(e.Errno))
	b = appendInt(b, 3, int64(e.Code))
	b = appendInt(b, 4, int64(e.Signal))
	for _, c := range e.Caps {
		b = appendElem(b, 5, c)
	}
	b = appendString(b, 6, e.EndedBy)
	b = appendBool(b, 7, e.Background)
	b = appendInt(b, 8, e.PidsPeak)
	b = appendInt(b, 9, e.MemoryPeak)
	b = appendInt(b, 10, e.DiskPeak)
	return appendInt(b, 11, e.ElapsedNanos)
}

// Decode reads e from b and refuses what no agent would say.
func (e *Exit) Decode(b []byte) bool {
	*e = Exit{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			e.NotStarted = d.string()
		case 2:
			e.Errno = d.int()
		case 3:
			e.Code = d.int()
		case 4:
			e.Signal = d.int()
		case 5:
			e.Caps = append(e.Caps, d.string())
			if len(e.Caps) > 3 {
				return false
			}
		case 6:
			e.EndedBy = d.string()
		case 7:
			e.Background = d.bool()
		case 8:
			e.PidsPeak = d.int64()
		case 9:
			e.MemoryPeak = d.int64()
		case 10:
			e.DiskPeak = d.int64()
		case 11:
			e.ElapsedNanos = d.int64()
		}
	}
	return !d.bad && e.valid()
}

// onlySeen says whether e may be told of a process that still runs.
func (e *Exit) onlySeen() bool {
	return e.NotStarted == "" && e.Errno == 0 && e.Code == 0 && e.Signal == 0 && e.EndedBy == "" && !e.Background
}

func (e *Exit) valid() bool {
	for i, c := range e.Caps {
		if c != CapMemory && c != CapProcesses && c != CapDisk {
			return false
		}
		for _, o := range e.Caps[:i] {
			if o == c {
				return false
			}
		}
	}
	switch e.EndedBy {
	case "", EndedMemory, EndedProcesses, EndedKilled, EndedTimeout, EndedOutput:
	default:
		return false
	}
	return len(e.NotStarted) <= maxGuestString && e.Errno >= 0 && e.Errno < 4096 &&
		e.Code >= 0 && e.Code <= 255 && e.Signal >= 0 && e.Signal <= 64 &&
		e.PidsPeak >= 0 && e.MemoryPeak >= 0 && e.DiskPeak >= 0 && e.ElapsedNanos >= 0
}

// Append adds f's encoding to b.
func (f *FileInfo) Append(b []byte) []byte {
	b = appendString(b, 1, f.Path)
	b = appendString(b, 2, f.Kind)
	b = appendInt(b, 3, f.Size)
	b = appendUint(b, 4, uint64(f.Mode))
	if !f.ModTime.IsZero() {
		b = appendInt(b, 5, f.ModTime.UnixNano())
	}
	b = appendUint(b, 6, f.Nlink)
	b = appendString(b, 7, f.LinkTarget)
	b = appendUint(b, 8, uint64(f.UID))
	return appendUint(b, 9, uint64(f.GID))
}

// Decode reads f from b and refuses what no agent would say.
func (f *FileInfo) Decode(b []byte) bool {
	*f = FileInfo{}
	d := decoder{b: b}
	for d.next() {
		switch d.num {
		case 1:
			f.Path = d.string()
		case 2:
			f.Kind = d.string()
		case 3:
			f.Size = d.int64()
		case 4:
			f.Mode = uint32(d.v)
		case 5:
			f.ModTime = time.Unix(0, d.int64())
		case 6:
			f.Nlink = d.v
		case 7:
			f.LinkTarget = d.string()
		case 8:
			f.UID = uint32(d.v)
		case 9:
			f.GID = uint32(d.v)
		}
	}
	switch f.Kind {
	case KindFile, KindDir, KindSymlink, KindOther:
	default:
		return false
	}
	return !d.bad && f.Size >= 0 && f.Mode <= 0o7777 && len(b) <= maxGuestString
}
