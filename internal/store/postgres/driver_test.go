package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/evalrun/evalrun/internal/testenv"
)

// Who ends a read is told so, and not that the server does not answer: that would end the process.
func TestReadingThatIsEnded(t *testing.T) {
	config, err := pgx.ParseConfig(testenv.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	made, err := (&connector{Connector: stdlib.GetConnector(*config), reads: true, patience: time.Minute}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*conn)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := c.BeginTx(ctx, driver.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := c.QueryContext(ctx, "SELECT n FROM generate_series(1, 1000) AS g (n)", nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	n := 0
	for err == nil {
		err = rows.Next(make([]driver.Value, 1))
		n++
	}
	if !errors.Is(err, context.Canceled) || passes(err) {
		t.Errorf("after %d rows: %v", n, err)
	}
	_ = tx.Rollback() // the connection may be lost
}
