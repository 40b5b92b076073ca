package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// Name is a URL as it may be shown: without a password, and without what else may be secret.
func Name(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil && strings.Contains(text, "@") { // a password with a / ends the host
		scheme, _, _ := strings.Cut(text, "://")
		return scheme + "://…"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		shown.User = url.User(name)
	}
	kept := url.Values{}
	for _, option := range harmless {
		if value := u.Query().Get(option); value != "" {
			kept.Set(option, value)
		}
	}
	shown.RawQuery = kept.Encode()
	return shown.String()
}

// harmless are the options of a URL that are shown.
var harmless = []string{
	"search_path", "sslmode", "sslrootcert", "host", "port", "dbname", "user", "target_session_attrs", "connect_timeout",
}

// connectError says why a store could not be opened.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// Is makes it a [store.ErrUnusable].
func (e *connectError) Is(target error) bool { return target == store.ErrUnusable }

// connectFailed says why there is no connection. pgx's own words have the URL's parts.
func (d *db) connectFailed(err error) error {
	return &connectError{fmt.Sprintf("cannot connect to the store %s: %s", d.name, reasonOf(err)), err}
}

// reasonOf is what an error says about the server, without what it says about the URL.
func reasonOf(err error) string {
	var refused *pgconn.PgError
	var network *net.OpError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("%s (SQLSTATE %s)", refused.Message, refused.Code)
	case errors.As(err, &unknown):
		return unknown.Error()
	case errors.As(err, &network):
		return network.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "the server does not answer"
	case errors.As(err, new(*pgconn.ParseConfigError)):
		return "the URL cannot be read; expected postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the server ended the connection; is it a PostgreSQL server?"
	}
	return "it answers something that cannot be understood; is it a PostgreSQL server, and is sslmode right?"
}

// errUnknown is an error of a commit whose outcome is not known: trying again could do it twice.
type errUnknown struct{ error }

func (e errUnknown) Unwrap() error { return e.error }

// passes reports whether what an error says can pass: the server is away, or gave way to somebody
// else.
func passes(err error) bool {
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.As(err, new(errUnknown)):
		return false
	case errors.As(err, &answer):
		switch answer.Code {
		case "40001", "40P01", // serialization, deadlock
			"25006", "53300", // read only while another server takes over, too many connections
			"57P01", "57P02", "57P03", "25P03", "55P03": // shut down, crash, starting up, idle too long, lock not got
			return true
		}
		return strings.HasPrefix(answer.Code, "08")
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || pgconn.SafeToRetry(err) || pgconn.Timeout(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*net.OpError)) ||
		strings.Contains(err.Error(), "conn closed")
}

// fewest is how often something is tried at least, however long each time takes.
const fewest = 5

// wait waits before something is tried again, longer with each failure and never at the same pace
// as others. It reports false when the first failure, at since, is as long ago as patience, or when
// done ends.
func wait(failures int, since time.Time, patience time.Duration, done <-chan struct{}) bool {
	const first, longest = 20 * time.Millisecond, time.Second
	pause := longest
	if failures < 7 {
		pause = first << (failures - 1)
	}
	if failures >= fewest && time.Since(since) >= patience {
		return false
	}
	timer := time.NewTimer(pause/2 + rand.N(pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// databaseError is an error of the database with words for a person before it.
type databaseError struct {
	text   string
	err    error
	broken bool
}

func (e *databaseError) Error() string { return e.text + ": " + e.err.Error() }
func (e *databaseError) Unwrap() error { return e.err }

// Broken implements the method that [store.IsBroken] asks for.
func (e *databaseError) Broken() bool { return e.broken }

// Away implements the method that [store.IsAway] asks for: the server does not answer, or has no room.
func (e *databaseError) Away() bool {
	var answer *pgconn.PgError
	return e.broken && (!errors.As(e.err, &answer) || passes(answer) || strings.HasPrefix(answer.Code, "53"))
}

// Describe implements Database.
func (d *db) Describe(err error, step ...string) error {
	located := err
	if len(step) > 0 {
		located = fmt.Errorf("%s: %w", strings.Join(step, " "), err)
	}
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.As(err, new(*databaseError)), errors.As(err, new(*connectError)):
		return err
	case errors.As(err, &answer):
		return &databaseError{fmt.Sprintf(meaning(answer.Code), d.name), located, !ofData(answer.Code)}
	case passes(err), errors.As(err, new(errUnknown)):
		return &databaseError{fmt.Sprintf("the server of the store %s does not answer", d.name), located, true}
	case rules.OfRow(err):
		return located
	}
	return err
}

// ofData reports whether an error is about the data that was to be written.
func ofData(code string) bool {
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// meaning says what an error of the server means for a store. %s stands for the store's name.
func meaning(code string) string {
	switch {
	case code == "53100":
		return "the disk of the store %s is full; make room and go on"
	case code == "42501":
		return "a right is missing in the store %s; its user must own the schema, or be allowed to make it (GRANT CREATE ON DATABASE)"
	case code == "25006":
		return "the store %s can only be read; is it a standby?"
	case strings.HasPrefix(code, "57"), strings.HasPrefix(code, "08"):
		return "the server of the store %s does not answer"
	case strings.HasPrefix(code, "53"):
		return "the server of the store %s has no room left for this"
	}
	return "the store %s"
}
