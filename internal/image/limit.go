package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// tooLarge says that an image is larger than it may be.
type tooLarge struct{ limit int64 }

func (t *tooLarge) Error() string {
	return fmt.Sprintf("it is larger than the limit of %d MB (storage_mb)", t.limit>>20)
}

// bounded ends a context when the new entries of a folder have more than limit bytes. It looks each
// second, since nothing reports how much a build has written. stop ends that and reports whether
// the limit was exceeded.
func bounded(ctx context.Context, dir string, limit int64) (_ context.Context, stop func() error) {
	if limit <= 0 || dir == "" {
		return ctx, func() error { return nil }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	old := map[string]bool{}
	entries, _ := os.ReadDir(dir) // there is none before the first build
	for _, e := range entries {
		old[e.Name()] = true
	}
	check := func() error {
		if newBytes(dir, old, limit) > limit {
			return &tooLarge{limit}
		}
		return nil
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if err := check(); err != nil {
					cancel(err)
					return
				}
			}
		}
	}()
	return ctx, func() error {
		close(done)
		<-ended
		defer cancel(nil)
		return check()
	}
}

// newBytes is the size of the entries of a folder that are not old. It stops counting beyond
// enough.
func newBytes(dir string, old map[string]bool, enough int64) (sum int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !old[e.Name()] && sum <= enough {
			sum += diskUse(filepath.Join(dir, e.Name()), "merged")
		}
	}
	return sum
}

// diskUse is how much disk a folder takes. It counts files with several names once, and leaves out
// folders called except.
func diskUse(dir, except string) (sum int64) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone by now
		}
		if entry.IsDir() && entry.Name() == except {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone by now
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if f := (file{uint64(st.Dev), st.Ino}); !entry.IsDir() && //nolint:unconvert // Dev differs between systems
			st.Nlink > 1 {
			if seen[f] {
				return nil
			}
			seen[f] = true
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum
}
