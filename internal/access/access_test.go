package access_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	st, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	now := time.Now()
	token, made, err := access.New(t.Context(), st, "ci", []access.Scope{access.Read, access.Run}, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	check := func(token string, now time.Time) (access.Identity, error) {
		return access.Check(t.Context(), st, token, now)
	}
	who, err := check(token, now)
	if err != nil || who.ID != made.ID || who.Name != "ci" || !who.May(access.Run) || who.May(access.Deliver) || who.May(access.Admin) {
		t.Errorf("%+v, %v", who, err)
	}
	_, secret, _ := strings.Cut(strings.TrimPrefix(token, "evr_"), "_")
	if len(secret) < 32 {
		t.Errorf("%d characters of a secret", len(secret))
	}
	other := "a"
	if strings.HasSuffix(token, other) {
		other = "b"
	}
	for what, one := range map[string]string{
		"nothing": "", "a prefix": "evr_", "no secret": "evr_" + made.ID, "an empty secret": "evr_" + made.ID + "_", "another secret": token[:len(token)-1] + other,
		"an unknown id": "evr_aaaaaaaa_" + secret, "upper case": strings.ToUpper(token), "more of it": token + "x", "less of it": token[:len(token)-1],
		"the digest": "evr_" + made.ID + "_" + string(made.Digest),
	} {
		if _, err := check(one, now); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := check(token, now.Add(time.Hour)); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("an expired one: %v", err)
	}
	if err := st.RevokeAccessToken(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := check(token, now); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("a revoked one: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(st.Dir(), "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.Contains(testenv.ReadFile(t, file), secret) {
			t.Errorf("%s has the secret", file)
		}
	}
}

func TestAdminMayEverythingAndNobodyNothing(t *testing.T) {
	t.Parallel()
	for _, s := range access.Scopes {
		if !(access.Identity{Scopes: []access.Scope{access.Admin}}).May(s) {
			t.Errorf("admin may not %s", s)
		}
		if access.From(context.Background()).May(s) {
			t.Errorf("nobody may %s", s)
		}
	}
	if _, err := access.ParseScopes("read,runn"); err == nil || !strings.Contains(err.Error(), `did you mean "run"?`) {
		t.Error(err)
	}
	if got, err := access.ParseScopes("run, read,run"); err != nil || !slices.Equal(got, []access.Scope{access.Run, access.Read}) {
		t.Error(got, err)
	}
}
