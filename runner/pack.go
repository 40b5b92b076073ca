package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/pack"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/store/rules"
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

// PackOptions say how runs are packed.
type PackOptions struct {
	// WithPayloads packs what agents were given and have left as it is, secrets too, which needs a key. Without it
	// a run that has a secret in what it still needs is refused.
	WithPayloads bool
	// Key encrypts the file; nil for one that everybody can read.
	Key *Key
	// Variables are those of the runs: their values are looked for.
	Variables Variables
	// Notice, if not nil, is called with messages for the user.
	Notice func(text string)
}

// Key is what a pack is encrypted with, or what it is read with: a passphrase, or keys of age.
type Key = pack.Key

// Pack writes runs with all that belongs to them into one file, which must not exist. They stay in
// the store as they are. A run that a process works on is refused.
func (s *Store) Pack(ctx context.Context, runs []Run, file string, o PackOptions) (err error) {
	if o.WithPayloads && o.Key == nil {
		return inputError("what agents were given and have left is packed as it is only into a file that is encrypted: give a key")
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
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
	var g *packGuard
	if !o.WithPayloads {
		if g, err = s.newPackGuard(ctx, runs, o); err != nil {
			return err
		}
	}
	if err := s.export(ctx, ids, dir, g); err != nil {
		return err
	}
	err = writeNew(file, func(w io.Writer) (err error) {
		if o.Key != nil {
			sealed, keyErr := o.Key.Encrypt(w)
			if keyErr != nil {
				return inputError("%w", keyErr)
			}
			defer func() { err = errors.Join(err, sealed.Close()) }()
			w = sealed
		}
		p, err := pack.NewWriter(w, m)
		if err != nil {
			return err
		}
		if err := s.packFiles(ctx, p, ids, filepath.Join(dir, databaseFile), g); err != nil {
			return err
		}
		if len(p.Left) > 0 {
			o.Notice(fmt.Sprintf("left out: %s and %d more, which are no files, or links that lead out of their folder", p.Left[0],
				len(p.Left)-1))
		}
		return errors.Join(p.Close(), s.unchanged(ctx, runs))
	})
	if err == nil {
		err = errors.Join(s.noteLocalJobs(ctx, ids, o.Notice), s.noteFilesElsewhere(ctx, runs, o.Notice))
	}
	return err
}

// export copies the rows of runs into a new store in a folder.
func (s *Store) export(ctx context.Context, ids []string, dir string, g *packGuard) error {
	to, err := backend.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	err = s.st.Export(ctx, ids, to, func(r *rules.Row) error {
		if s.st.Files() != "" {
			// The folder of a database's files is nowhere near the eval set, and that of the next store may be.
			if err := rebase(r, func(work string) (string, error) { return path.Join("..", work), nil }); err != nil {
				return err
			}
		}
		return g.row(r)
	})
	for _, id := range ids {
		if g != nil && err == nil {
			err = g.shared(ctx, to, id)
		}
	}
	err = errors.Join(err, to.Close())
	switch {
	case errors.Is(err, store.ErrHeld):
		return inputError("%w; end it first, then pack again", err)
	case errors.Is(err, store.ErrElsewhere):
		return inputError("%w; pack there, or share the folder of the store's files with that machine", err)
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

// rebase changes where a plan looks for the eval set: its folder relative to that of the store. f is given where
// it is relative to the folder in which the run was started.
func rebase(r *rules.Row, f func(work string) (string, error)) (err error) {
	if r.Table != "plans" {
		return nil
	}
	r.Change(func(column string, value []byte) []byte {
		var plan map[string]json.RawMessage
		var work string
		if column != "data" || json.Unmarshal(value, &plan) != nil || json.Unmarshal(plan["workDir"], &work) != nil {
			return value // it is said when the plan is read
		}
		var base string
		if base, err = f(work); err == nil {
			plan["baseDir"], err = json.Marshal(base)
		}
		if err == nil {
			value, err = json.Marshal(plan)
		}
		return value
	})
	return err
}

func (s *Store) packFiles(ctx context.Context, p *pack.Writer, ids []string, database string, g *packGuard) error {
	if err := p.Tree(databaseFile, database); err != nil {
		return err
	}
	if g != nil { // the rows of the database have been looked at
		p.Check = g.file
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
			work, outside := files.Of(s).Work(rollout), filepath.Join(workspace.StateDir(), s.ID(), rollout)
			if err := g.snapshots(rollout, work, outside); err != nil {
				return err
			}
			without := g.without(workspace.OverImage)
			err := errors.Join(p.Tree(workFolder+"/"+rollout, work, without...),
				p.Tree(outsideFolder+"/"+rollout, outside, without...))
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

// noteFilesElsewhere reports what has ended on other machines, whose files cannot go along.
func (s *Store) noteFilesElsewhere(ctx context.Context, runs []Run, notice func(string)) error {
	for _, run := range runs {
		rollouts, err := s.st.RolloutIDs(ctx, run.ID)
		if err != nil {
			return err
		}
		left := map[string]int{} // by machine
		for _, rollout := range rollouts {
			switch kept, err := s.st.Kept(ctx, rollout); {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return err
			case kept.Elsewhere(s.st.Files()) != "" && (run.Final || kept.Files == nil):
				left[kept.Machine]++
			}
		}
		for _, machine := range slices.Sorted(maps.Keys(left)) {
			notice(fmt.Sprintf("left out: logs and files of run %s that are on the machine %s (rollouts: %d); pack there to have them",
				run.ID, machine, left[machine]))
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

// Unpacked are the runs that [Unpack] has put into a store.
type Unpacked struct {
	Dir  string
	Runs []string
}

// Unpack puts the runs of a packed file into a store, which is made if it does not exist. A new store in
// a folder gets the id of the packed one. Nothing that exists is replaced: if one of the runs exists
// already, the whole file is refused. The key is for a file that is encrypted.
func Unpack(ctx context.Context, dir, file string, key Key, o OpenOptions) (out Unpacked, err error) {
	if err := backend.Check(dir); err != nil {
		return out, &InputError{Err: err}
	}
	exists, near := true, workspace.StateDir()
	if backend.IsFolder(dir) {
		if dir, err = filepath.Abs(dir); err != nil {
			return out, err
		}
		_, statErr := os.Lstat(filepath.Join(dir, databaseFile))
		exists = statErr == nil
		if there, err := os.ReadDir(dir); !exists && err == nil && len(there) > 0 {
			return out, inputError("%s is no store, and not empty; give another folder with --store", dir)
		}
		near = filepath.Dir(dir)
	}
	// A refused file leaves nothing, not even a folder.
	for _, err := os.Stat(near); errors.Is(err, fs.ErrNotExist) && near != filepath.Dir(near); _, err = os.Stat(near) {
		near = filepath.Dir(near)
	}
	tmp, err := os.MkdirTemp(near, ".evalrun-unpack-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, workspace.Remove(tmp)) }()
	u := unpacking{dir: dir, tmp: tmp}
	if err := u.extract(file, key); err != nil {
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

// unpacking is a pack in a folder beside the store, or beside the files of one in a database.
type unpacking struct {
	// dir is the store, and tmp the folder.
	dir, tmp string
	storeID  string
	runs     []string
	// folders are the top folders of the unpacked files, relative to tmp.
	folders []string
}

func (u *unpacking) extract(file string, key Key) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return &InputError{Err: err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err := key.Open(f)
	if errors.Is(err, pack.ErrKey) {
		return inputError("%s cannot be unpacked: %w", file, err)
	}
	if err == nil {
		_, err = pack.Extract(content, u.tmp)
	}
	if bad := (*pack.InvalidError)(nil); errors.As(err, &bad) {
		return inputError("%s cannot be unpacked: %s", file, bad.Reason)
	}
	return err
}

// isName reports whether an id can name a folder: a path would lead elsewhere.
func isName(id string) bool { return filepath.IsLocal(id) && filepath.Base(id) == id && id != "." }

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
	var outside int
	if err == nil { // a pack has all blocks; who made it must not say from where others are fetched
		outside, err = st.st.Outside(ctx)
	}
	if err == nil && outside == 0 { // rollouts of another store that have the same block would be without it otherwise
		err = st.st.EachBlock(ctx, snapshot.CheckBlock)
	}
	if err := errors.Join(err, st.Close()); errors.Is(err, snapshot.ErrLost) {
		return inputError("%s cannot be unpacked: %w", file, err)
	} else if err != nil {
		return err
	}
	if outside > 0 {
		return inputError("%s cannot be unpacked: it has not all blocks of its files, and says of %d that they are elsewhere", file, outside)
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

// place is the folder's place in the store with an id, whose files are in a folder.
func place(name, dir, storeID string) string {
	if filepath.Dir(name) == outsideFolder {
		return filepath.Join(workspace.StateDir(), storeID, filepath.Base(name))
	}
	return filepath.Join(dir, name)
}

// move moves folders of the pack to their places, all of them or none.
func (u *unpacking) move(names []string, dir, storeID string) (undo func() error, err error) {
	var moved []string
	undo = func() (err error) {
		for _, folder := range moved {
			err = errors.Join(err, workspace.Remove(folder))
		}
		return err
	}
	for _, name := range names {
		to := place(name, dir, storeID)
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
	undo, err := u.move(outside, u.dir, u.storeID)
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
	o.MustExist = backend.IsFolder(u.dir)
	s, err := Open(u.dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, id := range u.runs {
		if _, err := s.st.Run(ctx, id); err == nil {
			return inputError("run %s is in the store %s already; nothing was unpacked", id, s.Name())
		}
	}
	from, err := backend.Open(u.tmp, store.Options{MustExist: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	undo, err := u.move(u.folders, s.Dir(), s.ID())
	if err == nil {
		err = s.st.Import(ctx, from, func(r *rules.Row) error {
			if s.st.Files() == "" {
				return nil
			}
			return rebase(r, func(work string) (string, error) {
				here, err := os.Getwd()
				if err == nil {
					here, err = filepath.Rel(s.Dir(), filepath.Join(here, filepath.FromSlash(work)))
				}
				return filepath.ToSlash(here), err
			})
		})
	}
	if errors.Is(err, store.ErrRunExists) {
		err = inputError("%w; nothing was unpacked", err)
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	return nil
}
