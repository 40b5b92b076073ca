package storetest

import (
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func accessTokenSpecs(s *suite) {
	token := func(id string) store.AccessToken {
		return store.AccessToken{ID: id, Name: "the token " + id, Digest: []byte{1, 2, 255}, Scopes: []string{"read", "run"}}
	}

	s.spec("a token is found by its id in every process until it is revoked", func(w *world) {
		first := token("a")
		first.ExpiresAt = w.Now().Add(time.Hour)
		added, err := w.a.AddAccessToken(w.ctx, first)
		w.must(err)
		first.CreatedAt = w.Now()
		equal(w, "added", added, first)
		w.advance(time.Second)
		second, err := w.a.AddAccessToken(w.ctx, token("b"))
		w.must(err)
		b := w.another()
		found, err := b.AccessToken(w.ctx, "a")
		w.must(err)
		equal(w, "found", found, first)
		all, err := b.AccessTokens(w.ctx)
		w.must(err)
		equal(w, "all", all, []store.AccessToken{first, second})
		w.must(b.RevokeAccessToken(w.ctx, "a"))
		_, err = w.a.AccessToken(w.ctx, "a")
		w.refused("a revoked one", err, store.ErrNotFound)
		w.refused("revoking it again", w.a.RevokeAccessToken(w.ctx, "a"), store.ErrNotFound)
		_, err = w.a.AccessToken(w.ctx, "b")
		w.must(err)
	})

	s.spec("an id is given once", func(w *world) {
		_, err := w.a.AddAccessToken(w.ctx, token("a"))
		w.must(err)
		other := token("a")
		other.Scopes = []string{"admin"}
		_, err = w.a.AddAccessToken(w.ctx, other)
		w.refused("the second", err, store.ErrExists)
		found, err := w.a.AccessToken(w.ctx, "a")
		w.must(err)
		equal(w, "scopes", found.Scopes, []string{"read", "run"})
	})
}
