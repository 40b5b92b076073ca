package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// accessTokens implements store.AccessTokens.
type accessTokens struct{ db *db }

const accessTokenColumns = "token_id, name, digest, scopes, created_at, expires_at"

// AddAccessToken implements AccessTokens.
func (s accessTokens) AddAccessToken(ctx context.Context, t store.AccessToken) (store.AccessToken, error) {
	err := s.db.writeOp(ctx, "add access token "+t.ID, func(w *write) error {
		n, err := w.tx.change(
			"INSERT INTO access_tokens ("+accessTokenColumns+") VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			t.ID, t.Name, t.Digest, strings.Join(t.Scopes, " "), w.tx.now, micros(t.ExpiresAt))
		if err == nil && n == 0 {
			err = fmt.Errorf("token %s: %w", t.ID, store.ErrExists)
		}
		t.CreatedAt = time.UnixMicro(w.tx.now).UTC()
		return err
	})
	return t, err
}

// AccessToken implements AccessTokens.
func (s accessTokens) AccessToken(ctx context.Context, id string) (store.AccessToken, error) {
	t, err := scanAccessToken(s.db.read.QueryRowContext(ctx,
		"SELECT "+accessTokenColumns+" FROM access_tokens WHERE token_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("token %s: %w", id, store.ErrNotFound)
	}
	return t, s.db.describe(err, "read access token", id)
}

// AccessTokens implements AccessTokens.
func (s accessTokens) AccessTokens(ctx context.Context) (out []store.AccessToken, err error) {
	defer func() { err = s.db.describe(err, "list the access tokens") }()
	rows, err := s.db.read.QueryContext(ctx,
		"SELECT "+accessTokenColumns+" FROM access_tokens ORDER BY created_at, token_id")
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		t, err := scanAccessToken(r)
		out = append(out, t)
		return err
	})
	return out, err
}

// RevokeAccessToken implements AccessTokens.
func (s accessTokens) RevokeAccessToken(ctx context.Context, id string) error {
	return s.db.writeOp(ctx, "revoke access token "+id, func(w *write) error {
		n, err := w.tx.change("DELETE FROM access_tokens WHERE token_id = ?", id)
		if err == nil && n == 0 {
			err = fmt.Errorf("token %s: %w", id, store.ErrNotFound)
		}
		return err
	})
}

func scanAccessToken(r scanner) (t store.AccessToken, err error) {
	var scopes string
	var created, expires sql.NullInt64
	err = r.Scan(&t.ID, &t.Name, &t.Digest, &scopes, &created, &expires)
	t.Scopes, t.CreatedAt, t.ExpiresAt = strings.Fields(scopes), fromMicros(created), fromMicros(expires)
	return t, err
}
