package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/testenv"
)

func open(t *testing.T, url, files string) *rules.Store {
	t.Helper()
	s, err := postgres.Open(url, store.Options{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// planOfOne is the plan of the run "r" with one rollout.
func planOfOne() store.Plan {
	return store.Plan{RunID: "r", Evaluations: []store.Evaluation{{ID: "e"}},
		Rollouts: []store.PlannedRollout{{ID: uuid.NewString()}}}
}

// query asks the database of a store.
func query(t *testing.T, url, text string) {
	t.Helper()
	if err := tryQuery(t, url, text); err != nil {
		t.Fatal(err)
	}
}

func tryQuery(t *testing.T, url, text string) error {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(context.WithoutCancel(t.Context()), text) // also after the test
	return errors.Join(err, db.Close())
}

func TestSeveralMakeTheTablesAtOnce(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	var all sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		all.Go(func() {
			s, err := postgres.Open(url, store.Options{Files: dir})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[7] {
		t.Errorf("they have opened different stores: %v", ids)
	}
}

func TestANewerSchema(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	s := open(t, url, dir)
	query(t, url, "UPDATE meta SET value = '99' WHERE key = 'schema'")
	if _, err := s.CreateRun(t.Context(), planOfOne()); err == nil || !store.IsBroken(err) ||
		!strings.Contains(err.Error(), "to schema 99 while this process, which knows schema 5") {
		t.Errorf("it is written, although it was migrated meanwhile: %v", err)
	}
	_, err := postgres.Open(url, store.Options{Files: dir})
	if !errors.Is(err, store.ErrUnusable) || !strings.Contains(err.Error(), "has schema 99 and this evalrun knows schema 5") {
		t.Errorf("it is opened: %v", err)
	}
}

// A database or a user may have another isolation by default, with which a transaction would not see
// what was committed while it waited for the lock.
func TestTransactionsSeeWhatWasCommittedBefore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, at(t, dir)+"&default_transaction_isolation=serializable", dir)
	var level string
	if err := s.Write(t.Context(), "look", func(tx *rules.Tx) error {
		return tx.Row([]any{&level}, "SELECT current_setting('transaction_isolation')")
	}); err != nil || level != "read committed" {
		t.Errorf("%q, %v", level, err)
	}
}

// Machines that do not share the folder of the files can all claim, and are told where the files of a
// rollout are.
func TestFilesOnAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	here, there := open(t, url, dir), open(t, url, t.TempDir())
	if here.Files() == "" || here.Files() == there.Files() || here.KeepsFiles() != store.DefaultKeepFiles {
		t.Errorf("the folders are %q and %q; %d bytes of files are kept", here.Files(), there.Files(), here.KeepsFiles())
	}
	if _, err := here.CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	claims, err := there.Claim(t.Context(), "r", 1)
	if err != nil || len(claims) != 1 {
		t.Fatalf("it cannot be claimed on another machine: %v, %v", claims, err)
	}
	if _, err := here.Kept(t.Context(), claims[0].ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("files of a rollout that has none: %v", err)
	}
	end := store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: []byte("{}")}
	if _, err := there.CommitSegment(t.Context(), claims[0].Token, end); err != nil {
		t.Fatal(err)
	}
	kept, err := here.Kept(t.Context(), claims[0].ID)
	if err != nil || kept.Place != there.Files() || kept.Machine != store.ThisMachine().Name || kept.Files != nil || kept.Segment != 1 {
		t.Errorf("the files are at %+v, %v", kept, err)
	}
}

// Who scores a rollout on another machine says that its files are there, as long as it holds it.
func TestFilesMoveWithTheirEvaluators(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	here, there := open(t, url, dir), open(t, url, t.TempDir())
	if _, err := here.CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	claimed := func(s *rules.Store) store.Token {
		t.Helper()
		claims, err := s.Claim(t.Context(), "r", 1)
		if err != nil || len(claims) != 1 {
			t.Fatalf("%v, %v", claims, err)
		}
		return claims[0].Token
	}
	first := claimed(there)
	end := store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: []byte("{}"), Kept: &store.Kept{Files: []byte("{}")}}
	if _, err := there.CommitSegment(t.Context(), first, end); err != nil {
		t.Fatal(err)
	}
	if err := there.Release(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	second := claimed(here)
	if err := there.MoveKept(t.Context(), first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("who does not hold it any more has moved it: %v", err)
	}
	if err := here.MoveKept(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	kept, err := there.Kept(t.Context(), first.RolloutID)
	if err != nil || kept.Place != here.Files() || string(kept.Files) != "{}" {
		t.Errorf("the files are at %+v, %v", kept, err)
	}
}

// A store that an earlier version has made gets the new tables, and keeps what it says of files.
func TestAnOlderSchema(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	s := open(t, url, dir)
	if _, err := s.CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), "r", 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	query(t, url, "DROP TABLE kept; DROP TABLE kept_blocks; DROP TABLE blocks; DROP TABLE limits; DROP TABLE workers; ALTER TABLE runs DROP COLUMN priority; ALTER TABLE rollouts DROP COLUMN tags; DROP INDEX triggers_started; UPDATE meta SET value = '1' WHERE key = 'schema'")
	query(t, url, "INSERT INTO meta (key, value) VALUES ('files', 'there other machine')")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, err := postgres.Open(url, store.Options{Files: dir, MustExist: true})
			if err != nil {
				t.Error(err)
				return
			}
			kept, err := s.Kept(t.Context(), claims[0].ID)
			if err != nil || kept.Place != "there" || kept.Machine != "other machine" {
				t.Errorf("the files are at %+v, %v", kept, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A process that is killed leaves a folder without a mark, or another process sees one that is not yet
// written. An empty mark would be the same on every machine.
func TestAFolderWithoutAMark(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	mark := filepath.Join(open(t, url, dir).Dir(), "files.id")
	if err := os.Truncate(mark, 0); err != nil {
		t.Fatal(err)
	}
	s := open(t, url, dir)
	if data, err := os.ReadFile(mark); err != nil || len(data) == 0 {
		t.Errorf("the mark is %q, %v", data, err)
	}
	if _, err := s.Claim(t.Context(), "", 1); err != nil {
		t.Error(err)
	}
}

func TestCommitsWakeOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	a, b := open(t, url, dir), open(t, url, dir)
	changed := b.Changed("r")
	if _, err := a.CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	if up := testenv.Receive(t, b.Wake(), "the wake-up"); !slices.Equal(up.Runs, []string{"r"}) || up.Unnamed {
		t.Errorf("it was told of %+v", up)
	}
	testenv.Receive(t, changed, "the change")
	if _, err := b.Cancel(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	testenv.Receive(t, a.Wake(), "the wake-up") // it has come after that of its own commit would have
	select {
	case up := <-a.Wake():
		t.Errorf("it was woken again, perhaps by its own commit: %+v", up)
	default:
	}
}

// A connection is cut at each point of a transaction, and what was sent before is done or not. Either
// way the transaction is made once: a token that is there already cannot be added.
func TestConnectionsThatAreCut(t *testing.T) {
	dir := t.TempDir()
	server := at(t, dir)
	p, through := startProxy(t, server)
	open(t, server, dir) // makes the tables
	for n := 1; ; n++ {
		s := open(t, through, dir)
		p.cutAfter(n)
		id := fmt.Sprintf("token-%d", n)
		if _, err := s.AddAccessToken(t.Context(), store.AccessToken{ID: id, Digest: []byte{1}}); err != nil {
			t.Fatalf("cut after %d messages: %v", n, err)
		}
		if _, err := s.AccessToken(t.Context(), id); err != nil {
			t.Fatalf("cut after %d messages, it is not there: %v", n, err)
		}
		if !p.wasCut() {
			if n < 8 {
				t.Fatalf("a transaction has only %d messages", n-1)
			}
			return
		}
	}
}

// What an operation writes is sent with what others write: when it fails, it fails alone.
func TestAnOperationOfAGroupThatFails(t *testing.T) {
	dir := t.TempDir()
	s := open(t, at(t, dir), dir)
	add := func(id string) func(*rules.Tx) error {
		return func(tx *rules.Tx) error {
			return tx.Exec("INSERT INTO holders (holder_id, pid, start_time, boot_id, pid_ns, opened_at) VALUES (?, 1, '', '', '', 0)", id)
		}
	}
	failure := errors.New("failure")
	errs := s.Together(add("a"), func(tx *rules.Tx) error { return errors.Join(add("lost")(tx), failure) }, add("b"), add("a"), add("c"),
		func(tx *rules.Tx) error { return tx.Row([]any{new(any)}, "SELECT 1 / 0") }, add("d"))
	var code *pgconn.PgError
	if errs[0] != nil || !errors.Is(errs[1], failure) || errs[2] != nil || !errors.As(errs[3], &code) || code.Code != "23505" ||
		errs[4] != nil || !errors.As(errs[5], &code) || code.Code != "22012" || errs[6] != nil {
		t.Fatal(errs)
	}
	var there string
	if err := s.Write(t.Context(), "look", func(tx *rules.Tx) error {
		return tx.Row([]any{&there}, "SELECT string_agg(holder_id, '' ORDER BY holder_id) FROM holders")
	}); err != nil || there != "abcd" {
		t.Errorf("%q are there, want abcd: %v", there, err)
	}
}

// While a process claims, all others wait for its lock: how long must not grow with the round trips of each rollout.
func TestAClaimOfManyTakesNoMoreMessagesThanOneOfFew(t *testing.T) {
	dir := t.TempDir()
	p, through := startProxy(t, at(t, dir))
	s := open(t, through, dir)
	plan := planOfOne()
	plan.Rollouts = nil
	for range 60 {
		plan.Rollouts = append(plan.Rollouts, store.PlannedRollout{ID: uuid.NewString()})
	}
	if _, err := s.CreateRun(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	claim := func(n int) int {
		before := p.messages.Load()
		claims, err := s.Claim(t.Context(), "", n)
		if err != nil || len(claims) != n {
			t.Fatalf("%d claims of %d, %v", len(claims), n, err)
		}
		return int(p.messages.Load() - before)
	}
	claim(2) // its statements are prepared
	few, many := claim(2), claim(50)
	if many > few+20 {
		t.Errorf("a claim of 50 takes %d messages, one of 2 takes %d", many, few)
	}
}

// A crash of the server takes the last claims back. A process that works on such a rollout already does
// not begin it a second time, but others may, and so may the process when its work has ended.
func TestAClaimThatACrashTookBack(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	a, b := open(t, url, dir), open(t, url, dir)
	if _, err := a.CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	claim := func(s *rules.Store, want int) (c store.Claim) {
		t.Helper()
		claims, err := s.Claim(t.Context(), "", 10)
		if err != nil || len(claims) != want {
			t.Fatalf("%d claims, want %d: %v", len(claims), want, err)
		}
		if want > 0 {
			c = claims[0]
		}
		return c
	}
	query(t, url, "CREATE TABLE earlier AS SELECT * FROM rollouts")
	takeBack := func() {
		t.Helper()
		query(t, url, "DELETE FROM rollouts; INSERT INTO rollouts SELECT * FROM earlier")
	}
	first := claim(a, 1)
	takeBack()
	claim(a, 0)
	if backlog, err := a.Backlog(t.Context(), ""); err != nil || backlog.Runnable != 0 {
		t.Errorf("%+v, %v", backlog, err)
	}
	if held, _, err := a.Renew(t.Context(), store.Tokens{Rollouts: []store.Token{first.Token}}); err != nil || len(held) != 0 {
		t.Errorf("it holds %v, %v", held, err)
	}
	other := claim(b, 1)
	if _, err := a.CommitSegment(t.Context(), first.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("what was taken back is committed: %v", err)
	}
	if err := b.Release(t.Context(), other.Token, 0); err != nil {
		t.Fatal(err)
	}
	takeBack()
	claim(a, 0)
	a.Forget(store.Tokens{Rollouts: []store.Token{first.Token}})
	claim(a, 1)
}

// What an operation was given is the same when its transaction is tried again.
func TestAnOperationThatIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	p, through := startProxy(t, at(t, dir))
	for n := 1; ; n++ {
		s := open(t, through, dir)
		p.cutAfter(n)
		if err := s.CheckNow(t.Context(), "r"); err != nil {
			t.Fatalf("cut after %d messages: %v", n, err)
		}
		if !p.wasCut() {
			return
		}
	}
}

// What the process cannot go on without is read again when its connection is cut.
func TestReadingThatIsCut(t *testing.T) {
	dir := t.TempDir()
	server := at(t, dir)
	p, through := startProxy(t, server)
	if _, err := open(t, server, dir).CreateRun(t.Context(), planOfOne()); err != nil {
		t.Fatal(err)
	}
	nothing := func(store.View) error { return nil }
	for n := 1; ; n++ {
		s := open(t, through, dir)
		p.cutAfter(n)
		b, err := s.Backlog(t.Context(), "r")
		if err != nil || b.Runnable != 1 {
			t.Fatalf("cut after %d messages: %+v, %v", n, b, err)
		}
		if err := s.Snapshot(t.Context(), "r", nothing); err != nil {
			t.Fatalf("cut after %d messages: %v", n, err)
		}
		if !p.wasCut() {
			return
		}
	}
}

// Who reads a view gets another one when its connection is cut, and begins anew. Lists are read again.
func TestViewsThatAreCut(t *testing.T) {
	dir := t.TempDir()
	server := at(t, dir)
	p, through := startProxy(t, server)
	plan := planOfOne()
	plan.Rollouts = nil
	const all = 450 // so that rows are fetched three times
	for range all {
		plan.Rollouts = append(plan.Rollouts, store.PlannedRollout{ID: uuid.NewString()})
	}
	if _, err := open(t, server, dir).CreateRun(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	views := 0
	for n := 1; ; n++ {
		s := open(t, through, dir)
		p.cutAfter(n)
		var seen map[string]bool
		if err := s.Snapshot(t.Context(), "r", func(v store.View) error {
			views++
			seen = map[string]bool{}
			return v.Rollouts(func(r store.RolloutView) error {
				if seen[r.ID] {
					return fmt.Errorf("%s is there twice", r.ID)
				}
				if seen[r.ID] = true; len(seen) > 1 {
					return nil
				}
				_, err := v.Evaluation(r.ID, 0)
				return err
			})
		}); err != nil || len(seen) != all {
			t.Fatalf("cut after %d messages: %d rollouts, %v", n, len(seen), err)
		}
		if !p.wasCut() {
			break
		}
	}
	for n := 1; ; n++ {
		s := open(t, through, dir)
		p.cutAfter(n)
		runs, err := s.Runs(t.Context())
		listed, errList := s.ListRuns(t.Context(), store.RunQuery{Limit: 10})
		rollouts, errRollouts := s.ListRollouts(t.Context(), "r", 0, 100)
		events, errEvents := s.Events(t.Context(), "r", 0, 100)
		if err := errors.Join(err, errList, errRollouts, errEvents); err != nil ||
			len(runs) != 1 || len(listed) != 1 || listed[0].Counts.Pending != all || len(rollouts) != 100 || len(events) != 1 {
			t.Fatalf("cut after %d messages: %v, %v, %d rollouts, %d events, %v", n, runs, listed, len(rollouts), len(events), err)
		}
		if !p.wasCut() {
			break
		}
	}
	t.Logf("%d views", views)
	own := errors.New("its own")
	called := 0
	if err := open(t, server, dir).Snapshot(t.Context(), "r", func(store.View) error { called++; return own }); !errors.Is(err, own) || called != 1 {
		t.Errorf("an error of its own: %v, called %d times", err, called)
	}
}

// The server ends all connections again and again, as when it is restarted. It lets one operation
// through in between, because on a fast server none would ever end.
func TestConnectionsThatTheServerEnds(t *testing.T) {
	dir := t.TempDir()
	url := at(t, dir)
	s, other := open(t, url, dir), open(t, url, dir)
	const writers, each = 8, 25
	done := make(chan struct{}, writers*each)
	var ending sync.WaitGroup
	ending.Go(func() {
		db, err := sql.Open("pgx", url)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		ended := 0
		for more := true; more; {
			n, err := endConnections(db)
			if err != nil {
				t.Error(err)
				return
			}
			if ended += n; n > 0 {
				_, more = <-done
				continue
			}
			select {
			case _, more = <-done:
			default: // nobody writes at the moment
			}
		}
		t.Logf("%d connections were ended", ended)
	})
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for j := range each {
				by := []*rules.Store{s, other}[i%2]
				token := store.AccessToken{ID: fmt.Sprintf("token-%d-%d", i, j), Digest: []byte{1}}
				if _, err := by.AddAccessToken(t.Context(), token); err != nil {
					t.Errorf("%s: %v", token.ID, err)
				}
				done <- struct{}{}
			}
		})
	}
	writing.Wait()
	close(done)
	ending.Wait()
	if all, err := s.AccessTokens(t.Context()); err != nil || len(all) != writers*each {
		t.Errorf("%d tokens are there, %v", len(all), err)
	}
}

// endConnections ends the connections that have last written an access token, and returns how many.
func endConnections(db *sql.DB) (ended int, err error) {
	err = db.QueryRow(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND application_name = 'evalrun' AND query LIKE '%access_tokens%'`).Scan(&ended)
	return ended, err
}

func TestNames(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:secret@h:1/db":                             "postgres://u@h:1/db",
		"postgres://h/db?password=secret&sslmode=disable":        "postgres://h/db?sslmode=disable",
		"postgresql://u:sec%20ret@h/db?search_path=x":            "postgresql://u@h/db?search_path=x",
		"postgres://u:secret@h:port/db":                          "postgres://…",
		"postgres://u:12/secret@h/db":                            "postgres://…",
		"postgres://u:12?secret@h/db":                            "postgres://…",
		"postgres://h/db?options=-c%20secret&sslpassword=secret": "postgres://h/db",
	} {
		if got := postgres.Name(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func TestServersThatCannotBeUsed(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := make(chan struct{})
	go func() {
		defer close(other)
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10)) // what is not read would reset the connection
			_, _ = c.Write([]byte("220 mail.example ESMTP\r\n"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = silent.Close()
		<-other
	})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	_ = closed.Close()
	for url, want := range map[string]string{
		"postgres://u:secret@" + nobody + "/db?sslmode=disable":                 "refused",
		"postgres://u:secret@" + silent.Addr().String() + "/db?sslmode=disable": "is it a PostgreSQL server",
		"postgres://u:secret@h:port/db":                                         "the URL cannot be read",
		"postgres://u:secret@h/db?sslmode=wrong":                                "the URL cannot be read",
	} {
		_, err := postgres.Open(url, store.Options{Files: t.TempDir()})
		if !errors.Is(err, store.ErrUnusable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// An administrator may make the schema, so that evalrun's user needs no right to make one.
func TestASchemaThatIsThere(t *testing.T) {
	dir := t.TempDir()
	u, err := url.Parse(at(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	schema, as := u.Query().Get("search_path"), u.String()
	testenv.Need(t, testenv.Postgres,
		tryQuery(t, as, fmt.Sprintf("CREATE ROLE %[1]s LOGIN PASSWORD '%[1]s'; CREATE SCHEMA AUTHORIZATION %[1]s", schema)))
	t.Cleanup(func() { query(t, as, fmt.Sprintf("DROP OWNED BY %[1]s CASCADE; DROP ROLE %[1]s", schema)) })
	u.User = url.UserPassword(schema, schema)
	open(t, u.String(), dir)
}

// PgBouncer takes a connection only if it begins with nothing else than what PgBouncer itself knows.
func TestConnectionsBeginWithLittle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan map[string]string, 1)
	go func() {
		defer close(began)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if first, err := pgproto3.NewBackend(c, c).ReceiveStartupMessage(); err == nil {
			if startup, ok := first.(*pgproto3.StartupMessage); ok {
				began <- startup.Parameters
			}
		}
	}()
	_, err = postgres.Open("postgres://u@"+l.Addr().String()+"/db?sslmode=disable&search_path=s", store.Options{})
	if !errors.Is(err, store.ErrUnusable) {
		t.Error(err)
	}
	_ = l.Close()
	with := <-began
	for _, known := range []string{"user", "database", "application_name"} {
		if with[known] == "" {
			t.Errorf("%s is missing", known)
		}
		delete(with, known)
	}
	if len(with) > 0 {
		t.Errorf("it also begins with %v", with)
	}
}

func TestADatabaseThatIsMissing(t *testing.T) {
	u, err := url.Parse(at(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/none"
	if _, err := postgres.Open(u.String(), store.Options{}); !errors.Is(err, store.ErrUnusable) ||
		!strings.Contains(err.Error(), `database "none" does not exist`) {
		t.Error(err)
	}
}
