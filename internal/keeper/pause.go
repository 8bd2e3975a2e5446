package keeper

import (
	"fmt"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

const (
	freezeTime = 5 * time.Second
	askTime    = 2 * time.Second
)

func (k *Keeper) pauseOrResume(id string, pause bool) error {
	s := k.find(id)
	if s == nil {
		return &Refusal{Code: "sandbox.not-found", Message: "no such sandbox: " + id}
	}
	if _, up := s.held(); !up {
		return notUp(id)
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if pause {
		return s.pause(k)
	}
	return s.resume(k)
}

// pause has no process of s use the processor any more, whatever runs in it.
// Where this host can, the group is frozen: no process can get out of that, and
// none notices. Where not, it is asked to stop by itself first, because its
// parts are in the middle of serving each other; then it is stopped by signal,
// and whatever of it still runs after that, too.
func (s *sandbox) pause(k *Keeper) error {
	s.mu.Lock()
	if s.cause != "" {
		s.mu.Unlock()
		return &Refusal{Code: "sandbox.not-found", Message: s.id + " is ending"}
	}
	was := s.paused
	s.paused = true // from here on its end thaws it
	s.mu.Unlock()
	if was {
		return nil
	}
	var err error
	if s.group.CanFreeze() {
		err = s.group.Freeze(freezeTime)
	} else {
		s.asked = s.ask.PauseCall != "" && k.tell(s.id, s.ask.PauseCall) == nil
		s.stopped, err = jail.StopAll(s.pid, s.asked, freezeTime)
	}
	s.mu.Lock()
	ended := s.cause != ""
	if ended {
		s.group.Thaw() // its end may have come before the freezing
	}
	s.mu.Unlock()
	if err != nil && !ended {
		s.resume(k)
		return fmt.Errorf("pause %s: %w", s.id, err)
	}
	return nil
}

func (s *sandbox) resume(k *Keeper) error {
	s.mu.Lock()
	was := s.paused
	s.mu.Unlock()
	if !was {
		return nil
	}
	var err error
	if s.group.CanFreeze() {
		err = s.group.Thaw()
	} else {
		jail.ContinueAll(s.stopped)
		s.stopped = nil
		if s.asked {
			if err = k.tell(s.id, s.ask.ResumeCall); err == nil {
				s.asked = false
			}
		}
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", s.id, err)
	}
	s.mu.Lock()
	s.paused = false
	s.mu.Unlock()
	return nil
}

// tell writes to a sandbox's control server and waits for it to say something,
// no matter what.
func (k *Keeper) tell(id, what string) error {
	f, err := k.launcher.Connect(id)
	if err != nil {
		return err
	}
	c, err := jail.Conn(f)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(askTime))
	if _, err := c.Write([]byte(what)); err != nil {
		return err
	}
	var b [1]byte
	if n, err := c.Read(b[:]); n == 0 {
		return fmt.Errorf("%w: it does not answer", err)
	}
	return nil
}
