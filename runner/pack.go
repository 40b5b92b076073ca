package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/pack"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/workspace"
)

// The folders of a pack. The folders of a store have the store's own names. outsideFolder has the
// files of agents without isolation, which are outside of the store.
const (
	runsFolder, workFolder, jobsFolder = "runs", "work", "jobs"
	outsideFolder                      = "outside"
	databaseFile                       = "store.db"
)

// Pack writes runs with all that belongs to them into one file, which must not exist. They stay in
// the store as they are. A run that a process works on is refused. Pack calls notice with messages
// for the user.
func (s *Store) Pack(ctx context.Context, runs []Run, file string, notice func(text string)) (err error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, inputError("%s exists already; give another name with -o", file))
	}
	dir, err := os.MkdirTemp("", "evalrun-pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var ids []string
	m := pack.Manifest{Evalrun: s.opts.Version, StoreID: s.ID(), PackedAt: time.Now().UTC().Truncate(time.Second)}
	for _, run := range runs {
		ids = append(ids, run.ID)
		m.Runs = append(m.Runs, pack.Run{ID: run.ID, Name: run.EvaluationSetName, Status: string(run.Status)})
	}
	portable, err := s.portable()
	if err != nil {
		return err
	}
	if err := portable.Export(ctx, ids, dir); errors.Is(err, store.ErrHeld) {
		return inputError("%w; end it first, then pack again", err)
	} else if err != nil {
		return err
	}
	err = writeNew(file, func(w io.Writer) error {
		p, err := pack.NewWriter(w, m)
		if err != nil {
			return err
		}
		if err := s.packFiles(ctx, p, ids, filepath.Join(dir, databaseFile)); err != nil {
			return err
		}
		if len(p.Left) > 0 {
			notice(fmt.Sprintf("left out: %s and %d more, which are no files, or links that lead out of their folder", p.Left[0],
				len(p.Left)-1))
		}
		return errors.Join(p.Close(), s.unchanged(ctx, runs))
	})
	if err == nil {
		err = s.noteLocalJobs(ctx, ids, notice)
	}
	return err
}

// writeNew writes a file under a new name. It appears whole or not at all.
func writeNew(file string, write func(io.Writer) error) (err error) {
	tmp := file + "." + uuid.NewString()[:8] + ".tmp"
	defer func() {
		if removed := os.Remove(tmp); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	if err := durable.WriteFile(tmp, 0o600, write); err != nil {
		return err
	}
	if err := os.Link(tmp, file); errors.Is(err, fs.ErrExist) {
		return inputError("%s exists already; give another name with -o", file)
	} else if err != nil { // the file system has no links
		return os.Rename(tmp, file)
	}
	return durable.Sync(filepath.Dir(file))
}

func (s *Store) packFiles(ctx context.Context, p *pack.Writer, ids []string, database string) error {
	if err := p.Tree(databaseFile, database); err != nil {
		return err
	}
	for _, id := range ids {
		if err := p.Tree(runsFolder+"/"+id, string(files.Of(s).Run(id))); err != nil {
			return err
		}
		rollouts, err := s.st.RolloutIDs(ctx, id)
		if err != nil {
			return err
		}
		for _, rollout := range rollouts {
			// Changes over an image are in the snapshot of a suspension, and in no other form that every
			// file system keeps.
			err := errors.Join(p.Tree(workFolder+"/"+rollout, files.Of(s).Work(rollout), workspace.OverImage...),
				p.Tree(outsideFolder+"/"+rollout, filepath.Join(workspace.StateDir(), s.ID(), rollout)))
			if err != nil {
				return err
			}
		}
		err = s.st.Triggers(ctx, id, true, func(t store.Trigger) error {
			return p.Tree(jobsFolder+"/"+t.ID, files.Of(s).Job(t.ID))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unchanged makes sure that nobody has worked on runs while their files were read.
func (s *Store) unchanged(ctx context.Context, runs []Run) error {
	for _, before := range runs {
		now, err := s.st.Run(ctx, before.ID)
		if err != nil {
			return err
		}
		if now.Revision != before.Revision {
			return inputError("run %s has changed while it was packed: another process works on it; end it first, then pack again",
				before.ID)
		}
	}
	return nil
}

// noteLocalJobs reports the jobs that cannot go along.
func (s *Store) noteLocalJobs(ctx context.Context, ids []string, notice func(string)) error {
	n := 0
	for _, id := range ids {
		err := s.st.Triggers(ctx, id, false, func(t store.Trigger) error {
			if _, err := os.Stat(filepath.Join(files.Of(s).Job(t.ID), "result.json")); t.Source == wait.SourceExec &&
				err != nil {
				n++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if n > 0 {
		notice(fmt.Sprintf("%d local jobs (exec) are waited for: they run on this machine, and only evalrun on it can ask for them; resume here until they have ended, and pack then",
			n))
	}
	return nil
}

// portable is the store as one whose runs can be packed.
func (s *Store) portable() (store.Portable, error) {
	if p, ok := s.st.Database.(store.Portable); ok {
		return p, nil
	}
	return nil, inputError("runs of a store in PostgreSQL cannot be packed by this version; pg_dump copies the whole store")
}

// Unpacked are the runs that [Unpack] has put into a store.
type Unpacked struct {
	Dir  string
	Runs []string
}

// Unpack puts the runs of a packed file into the store in a folder, which is made if it does not
// exist. A new store gets the id of the packed one. Nothing that exists is replaced: if one of the
// runs exists already, the whole file is refused.
func Unpack(ctx context.Context, dir, file string, o OpenOptions) (out Unpacked, err error) {
	if strings.Contains(dir, "://") && backend.Check(dir) == nil {
		return out, inputError("runs cannot be unpacked into a store in PostgreSQL by this version; give a folder with --store")
	}
	if err := store.CheckDir(dir); err != nil {
		return out, &InputError{Err: err}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return out, err
	}
	_, statErr := os.Lstat(filepath.Join(dir, databaseFile))
	exists := statErr == nil
	if there, err := os.ReadDir(dir); !exists && err == nil && len(there) > 0 {
		return out, inputError("%s is no store, and not empty; give another folder with --store", dir)
	}
	near := filepath.Dir(dir) // a refused file leaves nothing, not even a folder
	for _, err := os.Stat(near); errors.Is(err, fs.ErrNotExist) && near != filepath.Dir(near); _, err = os.Stat(near) {
		near = filepath.Dir(near)
	}
	tmp, err := os.MkdirTemp(near, ".evalrun-unpack-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, workspace.Remove(tmp)) }()
	u := unpacking{dir: dir, tmp: tmp}
	if err := u.extract(file); err != nil {
		return out, err
	}
	if err := u.check(ctx, file); err != nil {
		return out, err
	}
	if exists {
		err = u.into(ctx, o)
	} else {
		err = u.alone()
	}
	if err != nil {
		return out, err
	}
	return Unpacked{dir, u.runs}, nil
}

// unpacking is a pack in a folder beside the store.
type unpacking struct {
	dir, tmp string
	storeID  string
	runs     []string
	// folders are the top folders of the unpacked files, relative to tmp.
	folders []string
}

func (u *unpacking) extract(file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return &InputError{Err: err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = pack.Extract(f, u.tmp)
	if bad := (*pack.InvalidError)(nil); errors.As(err, &bad) {
		return inputError("%s cannot be unpacked: %s", file, bad.Reason)
	}
	return err
}

// isName reports whether an id can name a folder: a path would lead elsewhere.
func isName(id string) bool { return filepath.IsLocal(id) && filepath.Base(id) == id && id != "." }

// checkBlocks makes sure that each block of files is what its sum says: rollouts of another store that
// have the same block would be without it otherwise.
func (s *Store) checkBlocks(ctx context.Context) error {
	p, err := s.portable()
	if err != nil {
		return err
	}
	return p.EachBlock(ctx, snapshot.CheckBlock)
}

// check makes sure that the pack's store has only what belongs to the runs.
func (u *unpacking) check(ctx context.Context, file string) error {
	there, err := os.ReadDir(u.tmp)
	if err != nil {
		return err
	}
	for _, e := range there {
		if !slices.Contains([]string{databaseFile, runsFolder, workFolder, jobsFolder, outsideFolder}, e.Name()) {
			return inputError("%s cannot be unpacked: %q in it belongs to none of its runs", file, e.Name())
		}
	}
	st, err := Open(u.tmp, OpenOptions{MustExist: true})
	if err != nil {
		return inputError("%s cannot be unpacked: %w", file, err)
	}
	known, ids := map[string]bool{}, []string{}
	runs, err := st.Runs(ctx)
	for _, run := range runs {
		u.runs, known[runsFolder+"/"+run.ID] = append(u.runs, run.ID), true
		rollouts, idsErr := st.st.RolloutIDs(ctx, run.ID)
		for _, id := range rollouts {
			known[workFolder+"/"+id], known[outsideFolder+"/"+id] = true, true
		}
		ids = append(append(ids, run.ID), rollouts...)
		err = errors.Join(err, idsErr, st.st.Triggers(ctx, run.ID, true, func(t store.Trigger) error {
			known[jobsFolder+"/"+t.ID], ids = true, append(ids, t.ID)
			return nil
		}))
	}
	u.storeID = st.ID()
	if err == nil {
		err = st.checkBlocks(ctx)
	}
	if err := errors.Join(err, st.Close()); errors.Is(err, snapshot.ErrLost) {
		return inputError("%s cannot be unpacked: %w", file, err)
	} else if err != nil {
		return err
	}
	for _, id := range append(ids, u.storeID) {
		if !isName(id) {
			return inputError("%s cannot be unpacked: the id %q in it is no name", file, id)
		}
	}
	for _, top := range []string{runsFolder, workFolder, jobsFolder, outsideFolder} {
		entries, err := os.ReadDir(filepath.Join(u.tmp, top))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			name := top + "/" + e.Name()
			if !known[name] || !e.IsDir() {
				return inputError("%s cannot be unpacked: %q in it belongs to none of its runs", file, name)
			}
			u.folders = append(u.folders, name)
		}
	}
	return nil
}

// place is the folder's place in the store with an id.
func (u *unpacking) place(name, storeID string) string {
	if filepath.Dir(name) == outsideFolder {
		return filepath.Join(workspace.StateDir(), storeID, filepath.Base(name))
	}
	return filepath.Join(u.dir, name)
}

// move moves folders of the pack to their places, all of them or none.
func (u *unpacking) move(names []string, storeID string) (undo func() error, err error) {
	var moved []string
	undo = func() (err error) {
		for _, path := range moved {
			err = errors.Join(err, workspace.Remove(path))
		}
		return err
	}
	for _, name := range names {
		to := u.place(name, storeID)
		if _, err := os.Lstat(to); err == nil {
			return undo, inputError("%s exists already; nothing was unpacked. If no store has its run any more, remove it", to)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return undo, err
		}
		if err := workspace.Move(filepath.Join(u.tmp, name), to); err != nil {
			return undo, err
		}
		moved = append(moved, to)
	}
	return undo, nil
}

// alone turns the pack into a store.
func (u *unpacking) alone() error {
	outside := slices.DeleteFunc(slices.Clone(u.folders), func(name string) bool {
		return filepath.Dir(name) != outsideFolder
	})
	undo, err := u.move(outside, u.storeID)
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(u.tmp, outsideFolder)),
			os.WriteFile(filepath.Join(u.tmp, ".gitignore"), []byte("*\n"), 0o600), os.Chmod(u.tmp, 0o700))
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(u.dir), 0o755)
	}
	if err == nil {
		err = os.Rename(u.tmp, u.dir) // also over an empty folder
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	return durable.Sync(filepath.Dir(u.dir))
}

// into puts the runs into an existing store.
func (u *unpacking) into(ctx context.Context, o OpenOptions) (err error) {
	o.MustExist = true
	s, err := Open(u.dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, id := range u.runs {
		if _, err := s.st.Run(ctx, id); err == nil {
			return inputError("run %s is in the store %s already; nothing was unpacked", id, u.dir)
		}
	}
	portable, err := s.portable()
	if err != nil {
		return err
	}
	undo, err := u.move(u.folders, s.ID())
	if err == nil {
		err = portable.Import(ctx, u.tmp)
	}
	if errors.Is(err, store.ErrRunExists) {
		err = inputError("%w; nothing was unpacked", err)
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	return nil
}
