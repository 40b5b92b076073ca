package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// assets are the style and the script with their digests, which are part of their URLs.
var assets = sync.OnceValue(func() map[string]asset {
	out := map[string]asset{}
	for _, name := range []string{"style.css", "app.js", "inbox.js", "report.js"} {
		data, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(data)
		out[name] = asset{data, hex.EncodeToString(sum[:6])}
	}
	return out
})

type asset struct {
	data   []byte
	digest string
}

func assetURL(name string) string { return "/static/" + name + "?" + assets()[name].digest }
