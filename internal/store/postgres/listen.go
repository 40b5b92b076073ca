package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the channel on which the processes of the store tell each other of commits.
func (d *db) channel() string { return "evalrun:" + d.id }

// listener has a connection that waits for what other processes say.
type listener struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// checkEvery is how often the connection of a listener is tried. In between, one that was cut off
// goes unnoticed.
const checkEvery = 4 * time.Second

// start begins to listen. received is called with each message, and with an empty one when messages
// may have been lost.
func (l *listener) start(d *db, received func(message string)) error {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	conn, err := d.listenOn(ctx)
	if err != nil {
		return err
	}
	l.done.Go(func() {
		for failures := 0; ; {
			if conn != nil {
				failures = 0
				d.hear(ctx, conn, received)
				_ = conn.Close(context.WithoutCancel(ctx)) // it is lost, or ctx has ended
			}
			failures++
			if !wait(min(failures, 5), time.Now(), d.lease, ctx.Done()) {
				return
			}
			if conn, err = d.listenOn(ctx); err == nil {
				received("")
			}
		}
	})
	return nil
}

func (l *listener) stop() {
	if l.cancel != nil {
		l.cancel()
	}
	l.done.Wait()
}

func (d *db) listenOn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, d.config.Copy())
	if err != nil {
		return nil, err
	}
	if err = d.ask(ctx, conn); err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+quote(d.channel()))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// ask asks the server for its time, and so finds out whether it is there.
func (d *db) ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var now int64
	err := conn.QueryRow(ctx, "SELECT "+serverMicros).Scan(&now)
	if err == nil {
		d.setClock(now)
	}
	return err
}

// hear takes messages until the connection is lost or ctx ends.
func (d *db) hear(ctx context.Context, conn *pgx.Conn, received func(message string)) {
	for {
		within, cancel := context.WithTimeout(ctx, checkEvery)
		n, err := conn.WaitForNotification(within)
		cancel()
		switch {
		case err == nil:
			if sender, message, _ := strings.Cut(n.Payload, " "); sender != d.sender {
				received(message)
			}
		case ctx.Err() != nil || conn.IsClosed() || d.ask(ctx, conn) != nil:
			return
		}
	}
}
