package rules

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
)

// Database is a database that the rules are kept in: what SQLite and PostgreSQL do each in its own
// way. Its statements are those of the rules, in the SQL of SQLite; a database with another one
// translates them.
type Database interface {
	store.Place
	// Name is what a user calls the store, without anything that is secret.
	Name() string
	// Reader is a pool of connections that only read. A transaction of it that only reads sees one
	// moment.
	Reader() *sql.DB
	// Writable returns why nothing can be written, or nil.
	Writable() error
	// Connect returns the connection for transactions that write.
	Connect(ctx context.Context) (*sql.Conn, error)
	// Pipelines reports whether a connection that writes may send several statements at once, so that one
	// that changes something may fail only when another is asked for its answer.
	Pipelines() bool
	// Begin begins a transaction that writes, when no other one is in progress anywhere. It sets the
	// time of the transaction. relaxed says that a power cut may take the transaction back.
	Begin(t *Tx, relaxed bool) error
	// Commit ends a transaction, so that it is durable.
	Commit(t *Tx, what Changed) error
	// Again waits before a transaction or a read that failed is tried again, and reports whether it is to be.
	// failures is how often it has failed, for the first time at since, and gaveUp is closed when
	// nothing is to be waited for.
	Again(err error, failures int, since time.Time, gaveUp <-chan struct{}) bool
	// Tell tells other processes of a commit, if Commit has not done so.
	Tell(what Changed)
	// HasChanged reports whether anybody may have committed anything since the last call. It is called
	// every five seconds while somebody waits for a change.
	HasChanged() bool
	// Describe says what an error of the database means for a person, and at which step it came if one
	// is given. The error of a row that is missing or cannot be read gets the step as well. All other
	// errors say themselves what they are about.
	Describe(err error, step ...string) error
	// Shut closes all connections.
	Shut() error
}

// Changed is what a commit has changed.
type Changed struct {
	// Dispatchers says that dispatchers may have something to do.
	Dispatchers bool
	// Runs are the runs that have changed.
	Runs []string
}

// db is what all parts of a store share.
type db struct {
	Database
	read    *sql.DB
	holder  string
	machine store.Machine
	process store.Process
	lease   time.Duration
	// tags is a JSON array of what this process has.
	tags    string
	turns   turns
	now     func() time.Time
	commit  *committer
	changes *changes
	wake    chan store.WakeUp
	working *working

	// queries are statements of the pool that are prepared once, because they run all the time.
	queries sync.Map

	// blobs is the URL of the place for new blocks of files; empty for the database.
	blobs string
	// places are those that are in use, by their URLs.
	places sync.Map
	// keepFiles is how many bytes of one rollout's files the store takes.
	keepFiles int64

	closing  sync.Once
	closeErr error
}

// Store is a store: the rules over a database. Each of its parts implements an interface of package
// store over the same database, and has no other part.
type Store struct {
	*db
	runs
	queue
	scoring
	batches
	ledger
	mailbox
	questions
	reader
	listing
	mcpTasks
	accessTokens
	jobs
	outbox
	rescorings
	standings
	limits
	workers
	blocks
}

// Defaults fills in what options leave out.
func Defaults(opts store.Options) store.Options {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Lease == 0 {
		opts.Lease = store.DefaultLease
	}
	if opts.Machine == nil {
		here := store.ThisMachine()
		opts.Machine = &here
	}
	if opts.Process == nil {
		self := store.ThisProcess()
		opts.Process = &self
	}
	if opts.KeepFiles == nil {
		opts.KeepFiles = new(int64)
	}
	return opts
}

// New is the store over a database that is open. The options are complete.
func New(over Database, opts store.Options) *Store {
	d := &db{
		Database: over, read: over.Reader(), holder: uuid.NewString(), machine: *opts.Machine, process: *opts.Process,
		lease: opts.Lease, now: opts.Now, wake: make(chan store.WakeUp, 1), working: newWorking(),
	}
	d.changes = newChanges(over.HasChanged)
	d.commit = startCommitter(d)
	d.keepFiles, d.tags = *opts.KeepFiles, list(opts.Tags)
	d.blobs = strings.TrimRight(opts.Blobs, "/")
	return &Store{
		d, runs{d}, queue{d}, scoring{d}, batches{d}, ledger{d}, mailbox{d}, questions{d}, reader{d}, listing{d},
		mcpTasks{d}, accessTokens{d}, jobs{d}, outbox{d}, rescorings{d}, standings{d}, limits{d}, workers{d}, blocks{d},
	}
}

// Holder is the id under which this process claims.
func (d *db) Holder() string { return d.holder }

// Process implements Processes.
func (d *db) Process() store.Process { return d.process }

// Changed implements Changes.
func (d *db) Changed(runID string) <-chan struct{} { return d.changes.of(runID) }

// Wake returns a channel that receives after another process committed something that may concern a
// dispatcher. Wake-ups are folded together and may be lost.
func (d *db) Wake() <-chan store.WakeUp { return d.wake }

// Look does now what is done every five seconds while somebody waits for a change.
func (d *db) Look() { d.changes.look() }

// Close ends all waiting for changes and closes the store. Claims that are still held stay until
// their lease is void. Closing twice is no error.
func (d *db) Close() error {
	d.closing.Do(func() {
		d.commit.stop()
		d.changes.close()
		d.closeErr = d.Shut()
	})
	return d.closeErr
}

// Write runs a transaction of the database's own.
func (d *db) Write(ctx context.Context, step string, run func(*Tx) error) error {
	return d.writeOp(ctx, step, func(w *write) error { return run(w.tx) })
}

// WriteRelaxed is Write for what a power cut may take back.
func (d *db) WriteRelaxed(ctx context.Context, step string, run func(*Tx) error) error {
	return d.writeRelaxed(ctx, step, func(w *write) error { return run(w.tx) })
}

// again runs something that only reads until it succeeds, or until the database says that another try
// is not worth it.
func (d *db) again(ctx context.Context, read func() error) error {
	var since time.Time // of the first failure
	for failures := 1; ; failures++ {
		err := read()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if failures == 1 {
			since = time.Now()
		}
		if !d.Again(err, failures, since, d.commit.quit) {
			return err
		}
	}
}

func (d *db) describe(err error, step ...string) error { return d.Describe(err, step...) }

// writeOp runs one operation and returns when it is durable. Errors name the step. ctx ends only
// the waiting for a turn: an operation that has begun is finished.
func (d *db) writeOp(ctx context.Context, step string, run func(*write) error) error {
	return d.enqueue(ctx, &operation{step: step, run: run, err: make(chan error, 1)})
}

// writeHeld is writeOp for an operation that changes no other rollout than the one of a token.
func (d *db) writeHeld(ctx context.Context, step string, tok store.Token, run func(*write) error) error {
	return d.enqueue(ctx, &operation{step: step, run: run, err: make(chan error, 1), token: &tok})
}

// writeRelaxed runs one operation that survives the end of every process, but perhaps not a power
// cut. It waits for no sync. That keeps the time between one agent and the next short.
func (d *db) writeRelaxed(ctx context.Context, step string, run func(*write) error) error {
	return d.enqueue(ctx, &operation{step: step, run: run, err: make(chan error, 1), relaxed: true})
}

func (d *db) enqueue(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.Writable(); err != nil {
		return err
	}
	select {
	case d.commit.ops <- op:
		return d.describe(<-op.err, op.step)
	case <-ctx.Done():
		return ctx.Err()
	case <-d.commit.done:
		return store.ErrClosed
	}
}

// query is a prepared statement of the pool.
func (d *db) query(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := d.queries.Load(text); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := d.read.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if earlier, ok := d.queries.LoadOrStore(text, stmt); ok {
		_ = stmt.Close() // another goroutine was faster
		return earlier.(*sql.Stmt), nil
	}
	return stmt, nil
}

// queryRow runs a prepared query of one row.
func (d *db) queryRow(ctx context.Context, text string, args ...any) scanner {
	stmt, err := d.query(ctx, text)
	if err != nil {
		return failed{err}
	}
	return stmt.QueryRowContext(ctx, args...)
}

// failed is a row that could not be read.
type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// unreadableError is the error of a row that has something else than this package writes.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

// OfRow reports whether an error is of a row that is missing or cannot be read, and has no words of
// its own for that.
func OfRow(err error) bool {
	return err == store.ErrNotFound || err == sql.ErrNoRows || errors.As(err, new(unreadableError)) //nolint:errorlint // what has words of its own is not meant
}

// Server is a database on a server of its own.
type Server interface {
	// About says what people who operate it want to know, in a line.
	About(ctx context.Context) (string, error)
}

// About returns what a server says of itself that has the store, or nothing if there is none.
func (s *Store) About(ctx context.Context) (string, error) {
	server, ok := s.Database.(Server)
	if !ok {
		return "", nil
	}
	about, err := server.About(ctx)
	return about, s.describe(err, "look at the server")
}
