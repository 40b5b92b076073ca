package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// portable keeps the files of a rollout in the store that is suspended, or whose agent has ended. Any
// machine gets them from there that goes on with it, or scores it: the folders of its agent, and the
// record of its segments.
type portable struct{ held *held }

// portableFiles is the document that store.Kept has of them. What nobody needs has no id.
type portableFiles struct {
	Work   snapshot.Shared `json:"work,omitzero"`
	Record snapshot.Shared `json:"record,omitzero"`
	// Image is the digest of the image over which the agent works; empty if there is none.
	Image string `json:"image,omitempty"`
}

// Shared returns the snapshots that the store has of the files of a rollout.
func Shared(k store.Kept) (all []snapshot.Shared, err error) {
	if k.Files == nil {
		return nil, nil
	}
	var files portableFiles
	err = json.Unmarshal(k.Files, &files)
	for _, as := range []snapshot.Shared{files.Work, files.Record} {
		if as.ID != "" {
			all = append(all, as)
		}
	}
	return all, err
}

// FolderRecord and FolderSnapshots are the folders with the snapshots of a rollout, of its record and of the folders of
// its agent.
const (
	FolderRecord    = "record"
	FolderSnapshots = "snapshots"
)

// fileRecord is the file in a rollout's folder with the id of the record that was last kept or got.
const fileRecord = "record.id"

// on reports whether the files are kept in the store.
func (p portable) on() bool {
	return p.held.host.Store.KeepsFiles() > 0 && p.held.remote == nil && runtime.GOOS == "linux" // as snapshots need it
}

// loadKept reads where the files of the rollout are.
func (h *held) loadKept(ctx context.Context) (err error) {
	if h.claim.Segment == 1 && !mayBeScored(h.claim.State) {
		return nil
	}
	h.kept, err = h.host.Store.Kept(ctx, h.claim.RolloutID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // an earlier version has suspended it
	}
	return err
}

// isPortable reports whether the store has the files with which the claimed segment begins, or its
// evaluators.
func (h *held) isPortable() bool {
	if mayBeScored(h.claim.State) {
		return h.endIsShared()
	}
	return h.kept.Files != nil && h.kept.Segment+1 == h.claim.Segment
}

// endIsShared reports whether the store has what the agent has left at its end.
func (h *held) endIsShared() bool { return h.kept.Files != nil && h.kept.Segment == h.claim.Segment }

// evaluatorsNeed reports what the evaluators without a result need of a rollout beside its output: the
// record of its segments, and the folders of its agent.
func (h *held) evaluatorsNeed() (record, work bool) {
	for _, def := range h.run.Plan.Set.Evaluators {
		_, asked := h.evaluation.Criteria[def.ID]
		if def.Type == eval.TypeVerifier {
			asked = h.evaluation.Task != nil
		}
		if !asked || slices.ContainsFunc(h.claim.Results, func(r store.Result) bool { return r.EvaluatorID == def.ID }) {
			continue
		}
		record = record || !kinds.All.SeesOutputAlone(def)
		work = work || isCode(def) || def.Type == eval.TypeVerifier
	}
	return record, work
}

// filesElsewhere says which machine has the files of the rollout; empty if this one has them, or if
// the store has them or they are not needed.
func (h *held) filesElsewhere() string {
	if h.isPortable() || !h.cameFromElsewhere() {
		return ""
	}
	return h.kept.Machine
}

// areElsewhere says what to do about files on another machine.
func (h *held) areElsewhere(machine string) string {
	return fmt.Sprintf("its files are on the machine %s, and not in %s: go on with it there, or share that folder",
		machine, h.host.Store.Dir())
}

// record are the snapshots of the rollout's record.
func (p portable) record(root string) *snapshot.Store {
	return &snapshot.Store{Dir: filepath.Join(p.held.root(), FolderRecord), Root: root, WithoutSockets: true}
}

// keep stores what was taken of the agent's folders, the snapshot of this name in work, and a snapshot
// of the record, as far as they are needed. Nothing of that can be seen before the segment is committed.
func (p portable) keep(ctx context.Context, name string, needsRecord, needsWork bool) (*store.Kept, error) {
	h := p.held
	var files portableFiles
	var parts []part
	if needsWork {
		parts = append(parts, part{(layers{h}).snapshots(), &files.Work})
	}
	if needsRecord {
		record, err := p.takeRecord(name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{record, &files.Record})
	}
	if err := p.checkSize(name, parts); err != nil {
		return nil, err
	}
	var k store.Kept
	for _, part := range parts {
		as, needs, err := part.from.Share(ctx, name, h.host.Store)
		if err != nil {
			return nil, err
		}
		*part.as, k.Blocks = as, append(k.Blocks, needs...)
	}
	image, err := os.ReadFile(filepath.Join(h.root(), fileImage))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files.Image = string(image)
	if k.Files, err = json.Marshal(files); err != nil {
		return nil, err
	}
	failpoint.Hit("rollout.filesShared")
	if needsRecord {
		if err := p.isHere(files.Record.ID); err != nil {
			return nil, err
		}
	}
	return &k, nil
}

// part is one of the snapshots of a rollout that the store is to have.
type part struct {
	from *snapshot.Store
	as   *snapshot.Shared
}

// takeRecord makes a snapshot of the record.
func (p portable) takeRecord(name string) (*snapshot.Store, error) {
	dir := p.held.dir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	folders, err := recordFolders(dir)
	if err != nil {
		return nil, err
	}
	record := p.record(dir)
	if err := record.Prune(filepath.Base(p.held.segmentCopy())); err != nil {
		return nil, err
	}
	_, err = record.Take(name, folders...)
	return record, err
}

// checkSize refuses files that are larger than the store takes.
func (p portable) checkSize(name string, parts []part) error {
	var size int64
	for _, part := range parts {
		more, err := part.from.Size(name)
		if err != nil {
			return err
		}
		size += more
	}
	if limit := p.held.host.Store.KeepsFiles(); size > limit {
		return fault.Newf(fault.Unresumable,
			"the workspace cannot be kept: the files of the rollout have %s, and the store takes %s of one rollout (EVALRUN_PORTABLE)",
			inBytes(size), inBytes(limit))
	}
	return nil
}

// inBytes shows a size: of small ones each byte, of large ones MB, rounded up.
func inBytes(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// recordFolders lists the folders of a rollout in which its segments have left their files.
func recordFolders(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && e.Name() != folderIncoming {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// folderIncoming is where a record is made that comes from the store.
const folderIncoming = "incoming"

// get gets the files with which the claimed segment begins out of the store, as far as they are not
// here already. The folders of the agent are left as they are: see keptFolders.prepare.
func (p portable) get(ctx context.Context) error {
	var files portableFiles
	if err := json.Unmarshal(p.held.kept.Files, &files); err != nil {
		return err
	}
	return p.lost(p.fetch(ctx, filepath.Base(p.held.segmentCopy()), files))
}

// getEnd gets the files that the evaluators still need, and restores the folders as the agent has left
// them.
func (p portable) getEnd(ctx context.Context) error {
	h := p.held
	var files portableFiles
	if err := errors.Join(json.Unmarshal(h.kept.Files, &files), h.stillHeld()); err != nil {
		return err
	}
	record, work := h.evaluatorsNeed()
	if !record {
		files.Record.ID = ""
	}
	if !work {
		files.Work.ID = ""
	}
	if err := p.lost(p.fetch(ctx, verifierSnapshot, files)); err != nil {
		return err
	}
	if files.Work.ID == "" {
		return nil
	}
	return layers{h}.restore(verifierSnapshot, nil)
}

// cameFromElsewhere reports whether another machine has left the files with which evaluators begin.
func (h *held) cameFromElsewhere() bool {
	return h.kept.Elsewhere(h.host.Store.Files()) != ""
}

// fetch gets files, and gives the snapshot of the agent's folders this name.
func (p portable) fetch(ctx context.Context, name string, files portableFiles) error {
	h := p.held
	if err := p.getRecord(ctx, name, files.Record); err != nil {
		return err
	}
	if files.Image != "" {
		if err := errors.Join(os.MkdirAll(h.root(), 0o700), durable.WriteFile(filepath.Join(h.root(), fileImage), 0o600,
			func(w io.Writer) error {
				_, err := io.WriteString(w, files.Image)
				return err
			})); err != nil {
			return err
		}
	}
	if files.Work.ID == "" {
		return nil
	}
	return (layers{h}).snapshots().Fetch(ctx, name, files.Work, h.host.Store, (keptFolders{h}).names())
}

// lost makes a fault of files that cannot be had any more.
func (p portable) lost(err error) error {
	if !errors.Is(err, snapshot.ErrLost) {
		return err
	}
	return fault.Newf(fault.Workspace,
		"the files that the rollout was suspended with cannot be had from the store: %v; restore the store from a backup that has them, or run the evaluation again",
		err)
}

// getRecord puts the record of the earlier segments into the rollout's folder.
func (p portable) getRecord(ctx context.Context, name string, as snapshot.Shared) error {
	h := p.held
	if here, err := os.ReadFile(filepath.Join(h.dir(), fileRecord)); as.ID == "" || err == nil && string(here) == as.ID {
		return nil
	}
	incoming := filepath.Join(h.dir(), folderIncoming)
	if err := os.MkdirAll(incoming, 0o700); err != nil {
		return err
	}
	from := p.record(incoming)
	if err := from.Fetch(ctx, name, as, h.host.Store, nil); err != nil {
		return err
	}
	if err := errors.Join(from.Restore(name), from.Prune(name)); err != nil {
		return err
	}
	if err := replaceBelow(h.dir(), incoming); err != nil {
		return err
	}
	return errors.Join(workspace.Remove(incoming), durable.Sync(h.dir()), p.isHere(as.ID))
}

// replaceBelow moves what is in the folders of one folder into the folders of another, in place of
// what is there. An attempt of this machine that came to nothing may be in the way.
func replaceBelow(dir, from string) error {
	folders, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		to := filepath.Join(dir, folder.Name())
		entries, err := os.ReadDir(filepath.Join(from, folder.Name()))
		if err = errors.Join(err, os.MkdirAll(to, 0o700)); err != nil {
			return err
		}
		for _, e := range entries {
			place := filepath.Join(to, e.Name())
			if err := errors.Join(workspace.Remove(place), workspace.Move(filepath.Join(from, folder.Name(), e.Name()), place)); err != nil {
				return err
			}
		}
		if err := durable.Sync(to); err != nil {
			return err
		}
	}
	return nil
}

// isHere notes which record the rollout's folder has.
func (p portable) isHere(id string) error {
	return durable.WriteFile(filepath.Join(p.held.dir(), fileRecord), 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, id)
		return err
	})
}
