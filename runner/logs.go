package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// LogOptions choose the logs that are written.
type LogOptions struct {
	// All writes every file of the segments, not only printed output.
	All bool
	// Follow goes on with additions until the rollouts or the context have ended.
	Follow bool
	// Notice, if not nil, is told which files are on other machines.
	Notice func(text string)
}

// followEvery is how often a followed log is read again: nobody reports an agent's output.
const followEvery = 200 * time.Millisecond

// Logs writes the output of the agents, the setup and the verifiers of rollouts of a run, segment
// by segment, each file under its name.
func (s *Store) Logs(ctx context.Context, w io.Writer, runID string, rolloutIDs []string, o LogOptions) error {
	for _, id := range rolloutIDs {
		kept, err := s.st.Kept(ctx, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if machine := kept.Elsewhere(s.st.Files()); machine != "" && o.Notice != nil {
			o.Notice(fmt.Sprintf("the last files of rollout %s are on the machine %s, and not in %s: look there, or share that folder",
				id, machine, s.st.Dir()))
		}
	}
	l := logs{w: w, dir: files.Of(s), all: o.All, read: map[string]int64{}}
	var tick <-chan time.Time
	if o.Follow {
		ticker := time.NewTicker(followEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		changed := s.st.Changed(runID)
		ended, err := ended(ctx, s.st, rolloutIDs)
		if err != nil {
			return err
		}
		if ended || !o.Follow {
			return l.more(runID, rolloutIDs, true)
		}
		for again := false; !again; {
			if err := l.more(runID, rolloutIDs, false); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				again = true
			case <-tick:
			}
		}
	}
}

// ended reports whether none of the rollouts can change any more.
func ended(ctx context.Context, st store.Listing, rolloutIDs []string) (bool, error) {
	for _, id := range rolloutIDs {
		r, err := st.Rollout(ctx, id)
		if err != nil || !r.State.IsTerminal() {
			return false, err
		}
	}
	return true, nil
}

// logs writes files as they grow.
type logs struct {
	w    io.Writer
	dir  files.Store
	all  bool
	read map[string]int64
	// current is the file whose name was written last.
	current string
}

// more writes the new part of the files. Of a file that still grows it writes only whole lines.
func (l *logs) more(runID string, rolloutIDs []string, last bool) error {
	for _, id := range rolloutIDs {
		dir := string(l.dir.Run(runID).Rollout(id))
		names, err := l.files(dir)
		if err != nil {
			return err
		}
		for _, file := range names {
			if err := l.add(filepath.Join(dir, file), id+"/"+filepath.ToSlash(file), last); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *logs) add(path, name string, last bool) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed in the meantime
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(l.read[path], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if !last {
		data = data[:strings.LastIndexByte(string(data), '\n')+1]
	}
	if len(data) == 0 {
		return nil
	}
	l.read[path] += int64(len(data))
	text := redact.Terminal(string(data))
	if l.current != path {
		if l.current != "" {
			text = "\n==> " + redact.Line(name) + " <==\n" + text
		} else {
			text = "==> " + redact.Line(name) + " <==\n" + text
		}
		l.current = path
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = fmt.Fprint(l.w, text)
	return err
}

// files returns the files of a rollout's folder in the order of its segments, and then the others.
func (l *logs) files(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if ext := filepath.Ext(rel); err == nil && (l.all || ext == ".log" || filepath.Base(rel) == record.VerifierLog) {
			out = append(out, rel)
		}
		return err
	})
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(segmentOf(a), segmentOf(b)) })
	return out, err
}

// segmentOf orders files by segment and attempt. Other files come last.
func segmentOf(path string) float64 {
	parts := strings.Split(filepath.ToSlash(path), "/")
	if len(parts) > 2 && parts[0] == "segments" {
		segment, attempt, _ := strings.Cut(parts[1], ".")
		n, err1 := strconv.Atoi(segment)
		m, err2 := strconv.Atoi(attempt)
		if err1 == nil && err2 == nil {
			return float64(n)*1e6 + float64(m)
		}
	}
	return 1e18
}
