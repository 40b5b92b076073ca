package runner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/blob"
	"github.com/evalrun/evalrun/internal/checkout"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/schemas"
)

// ErrMoved is the error of work on a store whose folder was moved or removed in the meantime.
var ErrMoved = store.ErrMoved

// ErrNoStore is the error of opening a store that is not there, where none is to be made.
var ErrNoStore = errors.New("there is no store")

// Store is an open store: the folder that holds runs and all that belongs to them. Its methods may
// be called from several goroutines. It has more methods than other types have here, because it is
// the program as a library: one for each thing that one can do with a store.
type Store struct {
	st      *rules.Store
	opts    OpenOptions
	engines engines
	commits checkout.Commits
}

// OpenOptions say how a store is opened, and describe the process that opens it. The zero value is
// usable.
type OpenOptions struct {
	// MustExist makes it an error if there is no store; otherwise Open makes one.
	MustExist bool
	// Warn, if not nil, is called with warnings about the store.
	Warn func(text string)
	// Executable is the path of the program evalrun, which starts local jobs and sandboxes and
	// connects agents that know no HTTP. Empty means the program of this process. Leave it empty
	// only if that is evalrun, or if there are only function agents that start no local job.
	Executable string
	// Version is the version of evalrun that plans record and agents receive.
	Version string
	// Log, if not nil, gets log lines from LogLevel on, redacted, unless Options.Log takes them.
	Log      io.Writer
	LogLevel slog.Level
	// Lease is how long a rollout stays with a process that no longer answers. 0 means 30 s; all
	// processes of a store must use the same one.
	Lease time.Duration
	// Tags are what this process has that rollouts may ask for. It works on none that asks for another.
	Tags []string
	// Blobs is where those files are kept: file:///FOLDER or s3://BUCKET/PREFIX; empty for the store itself.
	// With it KeepFiles is 1 GB for every store, unless it is given.
	Blobs string
	// KeepFiles is how many bytes of the files of a suspended rollout the store takes, so that another
	// machine can go on with it; 0 means none. nil means 1 GB for a store in PostgreSQL, and none for
	// one in a folder.
	KeepFiles *int64
}

// Open opens the store in a folder, or in the PostgreSQL database of a URL that begins with
// postgres://. A caller closes it.
func Open(dir string, o OpenOptions) (*Store, error) {
	if err := backend.Check(dir); err != nil {
		return nil, &InputError{Err: err}
	}
	if o.Blobs != "" {
		if _, err := blob.Open(o.Blobs); err != nil {
			return nil, inputError("EVALRUN_BLOBS: %w", err)
		}
		if o.KeepFiles == nil {
			o.KeepFiles = new(int64(store.DefaultKeepFiles))
		}
	}
	warn := func(what string) {
		if o.Warn != nil {
			o.Warn(redact.Line(what))
		}
	}
	st, err := backend.Open(dir, store.Options{MustExist: o.MustExist, Lease: o.Lease, KeepFiles: o.KeepFiles, Blobs: o.Blobs, Tags: o.Tags, Warn: warn,
		Files: filepath.Join(workspace.StateDir(), "stores")})
	if errors.Is(err, fs.ErrNotExist) && o.MustExist {
		return nil, inputError("%w in %s; give its folder with --store, or start a run there first",
			ErrNoStore, backend.Name(dir))
	}
	if errors.Is(err, store.ErrUnusable) {
		return nil, &InputError{Err: err}
	}
	if err != nil {
		return nil, err
	}
	if o.Executable == "" {
		if o.Executable, err = os.Executable(); err != nil {
			return nil, errors.Join(err, st.Close())
		}
	}
	o.Version = cmp.Or(o.Version, "unknown")
	return &Store{st: st, opts: o}, nil
}

// Close closes the store. End all work on it first.
func (s *Store) Close() error { return s.st.Close() }

// Name is what a user calls the store, without what is secret: its folder, or the URL of its database.
func (s *Store) Name() string { return s.st.Name() }

// Dir is the folder of the store's files, as an absolute path.
func (s *Store) Dir() string { return s.st.Dir() }

// ID is the store's id, which results documents name.
func (s *Store) ID() string { return s.st.ID() }

// Internal is the store behind this one, for evalrun's own packages; nobody else can use its type.
func (s *Store) Internal() *rules.Store { return s.st }

// DocumentPath is the path of the results document of a run in the store.
func (s *Store) DocumentPath(runID string) string { return documentPath(s.st, runID) }

// DocumentHead returns the part before the rollouts of the results document in the store. It may be
// of an earlier revision than the run.
func (s *Store) DocumentHead(runID string) (schemas.Head, error) {
	return report.ReadHead(s.DocumentPath(runID))
}

// Run describes a run of the store.
type Run struct {
	ID                string
	EvaluationSetID   string
	EvaluationSetName string
	Status            schemas.Status
	// Final says that no rollout can change any more.
	Final bool
	// Interrupted says that the run could go on, but no process works on it.
	Interrupted bool
	// Held is the number of rollouts that a living process works on.
	Held      int
	CreatedAt time.Time
	// FinishedAt is zero while the run is not final.
	FinishedAt time.Time
	// Revision grows with every change of the run, Seq is the number of its last event.
	Revision, Seq int64
	Counts        Counts
}

// Counts counts the rollouts of a run by state.
type Counts struct {
	Total, Pending, Running, Suspended, Evaluating, Scoring, Completed, Faulted, Cancelled int
}

func newRun(r store.Run, a store.Activity) Run {
	out := Run{ID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName,
		Status: report.StatusOf(r.Counts), Final: r.Final(), Held: a.Held,
		CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt, Revision: r.Revision, Seq: r.Seq, Counts: Counts(r.Counts)}
	out.Interrupted = out.Status == schemas.Running && a == (store.Activity{})
	return out
}

// Runs returns the runs of the store, the newest first.
func (s *Store) Runs(ctx context.Context) ([]Run, error) {
	all, err := s.st.Runs(ctx)
	if err != nil {
		return nil, err
	}
	active, err := s.st.Activity(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Run, 0, len(all))
	for _, r := range all {
		out = append(out, newRun(r, active[r.ID]))
	}
	return out, nil
}

// PassingScore is the least score of a rollout that passes in a run.
func (s *Store) PassingScore(ctx context.Context, runID string) (float64, error) {
	plan, err := readPlan(ctx, s.st, runID)
	return plan.Set.Thresholds.Pass, err
}

// Events returns the events of a run after the given number, at most limit of them, redacted.
func (s *Store) Events(ctx context.Context, runID string, v Variables, after int64,
	limit int) ([]schemas.Event, error) {
	p, err := readPlanned(ctx, s.st, runID, v)
	if err != nil {
		return nil, err
	}
	all, err := s.st.Events(ctx, runID, after, limit)
	out := make([]schemas.Event, 0, len(all))
	for _, e := range all {
		e.Data = p.red.JSON(e.Data)
		out = append(out, report.EventOf(e))
	}
	return out, err
}
