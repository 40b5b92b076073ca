// Package postgres keeps a store in a PostgreSQL database, which processes of several machines can
// share. It knows connections, the differences between PostgreSQL and SQLite, migrations, and how
// processes tell each other of commits. What the store does is in package rules.
//
// One transaction writes at a time, whichever process it is of: each takes the store's lock before
// anything else. So a transaction meets what all before it have left, as with SQLite, and no rule has
// to ask what others do meanwhile. Processes commit in groups, hence the lock is not held for long.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// IsURL reports whether a store of this name is one in PostgreSQL.
func IsURL(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// defaultSchema is the schema of a store whose URL names none.
const defaultSchema = "evalrun"

// db is the open database. It implements [rules.Database].
type db struct {
	config *pgx.ConnConfig
	name   string
	schema string
	id     string
	// dir is the folder of the store's files on this machine, and files the mark by which it is known.
	dir, files string

	now func() time.Time
	// ahead is how far the server's clock is ahead of this machine's.
	ahead atomic.Int64
	// ownClock says that the time comes from the caller, and not from the server.
	ownClock bool
	lease    time.Duration

	read  *sql.DB
	write *sql.DB
	// sender marks the messages of this process.
	sender string
	listen listener
	// closed ends all waiting for the server.
	closed  chan struct{}
	closing sync.Once
}

// Open opens the store at a URL, and makes it if it is not there. The database must exist. The files
// of the store are in a folder that is named after its id.
func Open(url string, opts store.Options) (*rules.Store, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &connectError{text: fmt.Sprintf("the store %s: %s", Name(url), reasonOf(err))}
	}
	d := &db{config: config, name: Name(url), ownClock: opts.Now != nil, now: opts.Now, closed: make(chan struct{})}
	if !d.ownClock {
		d.now = d.serverTime
	}
	opts.Now = d.now
	if opts.KeepFiles == nil {
		opts.KeepFiles = new(int64(store.DefaultKeepFiles))
	}
	opts = rules.Defaults(opts)
	d.lease = opts.Lease
	d.schema = cmp.Or(config.RuntimeParams["search_path"], defaultSchema)
	delete(config.RuntimeParams, "search_path") // PgBouncer refuses a connection that begins with it
	config.AfterConnect = setting("SET search_path TO " + quote(d.schema))
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "evalrun")
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	config.DialFunc = newDialer().DialContext

	ctx := context.Background()
	first, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return nil, d.connectFailed(err)
	}
	err = d.migrate(ctx, first, opts.MustExist)
	if err == nil {
		err = d.makeFolder(opts.Files)
	}
	if err == nil {
		_, _ = first.Exec(ctx, oldCommits) // another process does it if this one cannot
	}
	if err = errors.Join(err, first.Close(ctx)); err != nil {
		if errors.As(err, new(*pgconn.PgError)) {
			err = &connectError{d.Describe(err).Error(), err}
		}
		return nil, err
	}

	d.read = sql.OpenDB(&connector{Connector: stdlib.GetConnector(*config), reads: true, patience: d.lease, closed: d.closed})
	d.read.SetMaxOpenConns(5)
	d.read.SetMaxIdleConns(4)
	writes := config.Copy()
	// A process that is stopped in the middle of a transaction has the lock that all others wait for. There is an index
	// for each statement that it runs, which the server does not take while it knows a new table too little.
	writes.AfterConnect = setting(fmt.Sprintf(
		"SET search_path TO %s; SET idle_in_transaction_session_timeout = %d; SET enable_seqscan = off; SET jit = off",
		quote(d.schema), (d.lease / 2).Milliseconds()))
	d.write = sql.OpenDB(&connector{Connector: stdlib.GetConnector(*writes), patience: d.lease, closed: d.closed})
	d.write.SetMaxOpenConns(1)

	s := rules.New(d, opts)
	d.sender = s.Holder()
	if err := d.listen.start(d, s.Received); err != nil {
		return nil, errors.Join(d.connectFailed(err), s.Close())
	}
	return s, nil
}

// setting makes a connection with the settings of some statements.
func setting(statements string) func(context.Context, *pgconn.PgConn) error {
	return func(ctx context.Context, c *pgconn.PgConn) error {
		_, err := c.Exec(ctx, statements).ReadAll()
		return err
	}
}

// connectTimeout is how long making a connection may take if the URL does not say it.
const connectTimeout = 10 * time.Second

// serverTime is the time by the server's clock: every machine has the same.
func (d *db) serverTime() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }

// setClock takes the time of the server, in microseconds, which was told just now.
func (d *db) setClock(micros int64) { d.ahead.Store(int64(time.Until(time.UnixMicro(micros)))) }

// ID implements Place.
func (d *db) ID() string { return d.id }

// Dir implements Place.
func (d *db) Dir() string { return d.dir }

// Name implements Database.
func (d *db) Name() string { return d.name }

// Files implements Place.
func (d *db) Files() string { return d.files }

// InPlace implements Place. A database does not move.
func (d *db) InPlace() error { return nil }

// Reader implements Database.
func (d *db) Reader() *sql.DB { return d.read }

// Writable implements Database.
func (d *db) Writable() error { return nil }

// Connect implements Database.
func (d *db) Connect(ctx context.Context) (*sql.Conn, error) { return d.write.Conn(ctx) }

// lockKey is the first half of the key of advisory locks; the second is the schema's.
const lockKey = 0x65766c72 // "evlr"

// Pipelines implements Database.
func (d *db) Pipelines() bool { return true }

// Begin implements Database. A statement sees what was committed before it began, whatever the
// server's default is, so the version is read by one after that which waits for the lock.
func (d *db) Begin(t *rules.Tx, relaxed bool) error {
	if err := t.Exec("BEGIN ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	if err := t.Exec("SELECT pg_advisory_xact_lock(CAST(? AS INTEGER), hashtext(?))", lockKey, d.schema); err != nil {
		return err
	}
	if relaxed {
		if err := t.Exec("SET LOCAL synchronous_commit TO off"); err != nil {
			return err
		}
	}
	var version int
	var now int64
	if err := t.Row([]any{&version, &now},
		"SELECT CAST(value AS BIGINT), "+serverMicros+" FROM meta WHERE key = 'schema'"); err != nil {
		return err
	}
	if d.ownClock {
		now = d.now().UnixMicro()
	} else {
		d.setClock(now)
	}
	t.SetTime(now)
	if version != schemaVersion {
		return rules.MigratedError(d.name, version, schemaVersion)
	}
	return nil
}

const serverMicros = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"

// Commit implements Database. The messages to other processes are part of the transaction. When the
// answer to a commit is lost, the server is asked what has become of the transaction.
func (d *db) Commit(t *rules.Tx, what rules.Changed) error {
	var id sql.NullString
	token, message := uuid.NewString(), d.sender+" "+what.Message()
	var err error
	if what.Dispatchers || len(what.Runs) > 0 {
		err = t.Row([]any{&id, new(any)}, noteCommit+", pg_notify(?, ?)", d.sender, token, d.channel(), message)
	} else {
		err = t.Row([]any{&id}, noteCommit, d.sender, token)
	}
	if err != nil {
		return err
	}
	err = t.Exec("COMMIT")
	if err == nil || !id.Valid || !passes(err) {
		return err
	}
	// Closing the store waits for this, so all questions together have a lease's time.
	since := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), since.Add(d.lease))
	defer cancel()
	for failures := 1; wait(failures, since, d.lease, d.closed); failures++ {
		switch committed, asked := d.outcome(ctx, id.String, token); {
		case asked != nil:
		case committed:
			t.Lose()
			return nil
		default:
			return err
		}
	}
	return fmt.Errorf("it is not known whether the transaction was committed: %w", errUnknown{err})
}

// noteCommit notes a transaction that has written something, and returns its number.
const noteCommit = `WITH noted AS (INSERT INTO commits (holder, token) SELECT ?, ? WHERE pg_current_xact_id_if_assigned() IS NOT NULL
	ON CONFLICT (holder) DO UPDATE SET token = excluded.token, at = excluded.at)
	SELECT CAST(pg_current_xact_id_if_assigned() AS TEXT)`

// outcome asks whether a transaction of this process was committed. It was not if the server does not
// know its number any more, or if somebody else has the number. A standby may be behind, and is not
// asked.
func (d *db) outcome(ctx context.Context, id, token string) (committed bool, err error) {
	var status sql.NullString
	var answer *pgconn.PgError
	err = d.read.QueryRowContext(ctx, "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_xact_status(CAST(? AS xid8)) END", id).
		Scan(&status)
	switch {
	case errors.As(err, &answer) && answer.Code == "22023", err == nil && status.String == "aborted":
		return false, nil
	case err == nil && status.String != "committed":
		return false, errors.New("it is in progress")
	case err != nil:
		return false, err
	}
	err = d.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM commits WHERE holder = ? AND token = ?)", d.sender, token).
		Scan(&committed)
	return committed, err
}

// Again implements Database.
func (d *db) Again(err error, failures int, since time.Time, gaveUp <-chan struct{}) bool {
	return passes(err) && wait(failures, since, d.lease, gaveUp)
}

// Tell implements Database. Commit has told others.
func (d *db) Tell(rules.Changed) {}

// HasChanged implements Database. Who listens is told of every commit, or that messages may be lost.
func (d *db) HasChanged() bool { return false }

// Shut implements Database.
func (d *db) Shut() error {
	d.closing.Do(func() { close(d.closed) })
	d.listen.stop()
	return errors.Join(d.read.Close(), d.write.Close())
}

// slack is how far the clocks of a machine and of the server may be apart without being said.
const slack = 5 * time.Second

// About implements rules.Server.
func (d *db) About(ctx context.Context) (string, error) {
	var version, names string
	var standbys, forgotten int
	err := d.read.QueryRowContext(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM rollouts WHERE owner IS NOT NULL AND lease_until < ?)`,
		d.now().Add(-time.Minute).UnixMicro()).Scan(&version, &names, &standbys, &forgotten)
	if err != nil {
		return "", err
	}
	about := fmt.Sprintf("PostgreSQL %s, tables of version %d", version, schemaVersion)
	switch {
	case names != "":
		about += ", synchronous standbys: " + names
	case standbys > 0:
		about += ", standbys that may lose what was committed last: none is synchronous"
	}
	if ahead := time.Duration(d.ahead.Load()).Round(time.Second); ahead.Abs() > slack {
		about += fmt.Sprintf(", a clock that is %s ahead of this machine's (leases are by that of the server)", ahead)
	}
	if forgotten > 0 {
		about += fmt.Sprintf(", rollouts whose holder has not renewed its lease for more than a minute, and that nobody takes over: %d", forgotten)
	}
	return about, nil
}
