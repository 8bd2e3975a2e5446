package sandbox

import "github.com/bermhq/berm/api"

// feed passes input events on. Stdin has a goroutine of its own, because the
// program may not be reading it.
func (x *execution) feed(over <-chan struct{}) {
	if x.streams.Input == nil {
		return
	}
	stdin := newQueue(2 * api.StdinWindow)
	defer stdin.kill()
	go func() {
		broken := false
		for {
			c, ok := stdin.get()
			if !ok {
				return
			}
			if c.data == nil {
				x.p.CloseStdin()
				continue
			}
			if !broken {
				_, err := x.p.Write(c.data)
				broken = err != nil // it no longer reads: what comes is taken and dropped
			}
			if x.streams.Took != nil {
				x.streams.Took(len(c.data))
			}
		}
	}()
	for {
		select {
		case <-over:
			return
		case in, ok := <-x.streams.Input:
			switch {
			case !ok:
				<-over
				return
			case in.StdinClose:
				stdin.put(chunk{})
			case in.Stdin != nil:
				stdin.put(chunk{data: in.Stdin})
			case in.Signal != 0:
				x.p.Signal(in.Signal)
			case in.Rows != 0 || in.Cols != 0:
				x.p.Resize(in.Rows, in.Cols)
			}
		}
	}
}
