package keeper

import (
	"fmt"
	"net"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

const (
	askTime   = 5 * time.Second        // for a sandbox to stop by itself, where Config says nothing
	quietTime = 500 * time.Millisecond // for what it has left to come to rest
	stopTime  = 5 * time.Second        // for signals to stop all that does not
)

func (k *Keeper) pauseOrResume(id string, pause bool) error {
	s := k.find(id)
	if s == nil {
		return &Refusal{Code: "sandbox.not-found", Message: "no such sandbox: " + id}
	}
	if !s.isUp() {
		return notUp(id)
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if pause {
		return s.pause(k)
	}
	return s.resume(k)
}

// pause has no process of s use the processor any more, whatever runs in it. It
// is asked to stop by itself first, because its parts are in the middle of
// serving each other. One that does not answer is stopped all the same; it may
// not survive that.
func (s *sandbox) pause(k *Keeper) error {
	s.mu.Lock()
	ended, was := s.cause != "", s.paused
	s.paused = true
	s.mu.Unlock()
	if ended {
		return &Refusal{Code: "sandbox.not-found", Message: s.id + " is ending"}
	}
	if was {
		return nil
	}
	grace := time.Duration(0)
	if s.ask.PauseCall != "" {
		var err error
		if s.asked, err = k.tell(s.id, s.ask.PauseCall); err == nil && k.answered(s.asked) {
			grace = quietTime
		}
	}
	var err error
	if s.stopped, err = jail.StopAll(s.pid, s.group, grace, stopTime); err != nil {
		s.resume(k)
		return fmt.Errorf("pause %s: %w", s.id, err)
	}
	return nil
}

func (s *sandbox) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

func (s *sandbox) resume(k *Keeper) error {
	s.mu.Lock()
	was := s.paused
	s.mu.Unlock()
	if !was {
		return nil
	}
	jail.ContinueAll(s.stopped)
	s.stopped = nil
	if s.asked != nil {
		// Had it not answered when it was stopped, it does so now.
		c, err := (*net.UnixConn)(nil), fmt.Errorf("it was asked to stop and does not answer")
		if k.answered(s.asked) {
			c, err = k.tell(s.id, s.ask.ResumeCall)
		}
		if err == nil {
			if !k.answered(c) {
				err = fmt.Errorf("it was asked to go on and does not answer")
			}
			c.Close()
		}
		if err != nil {
			return fmt.Errorf("resume %s: %w", s.id, err)
		}
		s.asked.Close()
		s.asked = nil
	}
	s.mu.Lock()
	s.paused = false
	s.mu.Unlock()
	return nil
}

// tell writes to a sandbox's control server.
func (k *Keeper) tell(id, what string) (*net.UnixConn, error) {
	f, err := k.launcher.Connect(id)
	if err != nil {
		return nil, err
	}
	c, err := jail.Conn(f)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(k.cfg.ask))
	if _, err := c.Write([]byte(what)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// answered waits for the first byte of an answer, whatever it is.
func (k *Keeper) answered(c *net.UnixConn) bool {
	c.SetDeadline(time.Now().Add(k.cfg.ask))
	var b [1]byte
	n, _ := c.Read(b[:])
	return n == 1
}
