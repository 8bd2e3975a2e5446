package attack

import "context"

// rootsFiles are where only root may write inside, and where it is root's to say
// what other programs run.
var rootsFiles = []string{"/etc/" + dropped, "/.berm/" + dropped, "/usr/bin/" + dropped, "/.berm/agent", "/etc/ld.so.preload", "/etc/ld.so.conf.d/" + dropped,
	"/etc/profile.d/" + dropped, "/etc/environment", "/etc/passwd", "/etc/profile"}

// joinOwned looks, after the program, whether it was root.
func joinOwned(a *attempt) {
	a.after = func(ctx context.Context) error {
		for _, path := range rootsFiles {
			if found, err := a.marked(ctx, path); err != nil {
				return err
			} else if found {
				a.o.Misplaced = append(a.o.Misplaced, "the program has written "+path+", which only root may")
			}
		}
		return nil
	}
}
