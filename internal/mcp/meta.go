package mcp

import (
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// EmptyObject is {}.
var EmptyObject = json.RawMessage("{}")

// Acknowledged is the modern answer to a request that has no result.
var Acknowledged = json.RawMessage(`{"resultType":"complete"}`)

// MetaOf returns the members of the _meta of params or a result.
func MetaOf(doc json.RawMessage) jsonobj.Object {
	meta, _ := jsonobj.ParseObject(jsonobj.Get(doc, "_meta"))
	return meta
}

// WithoutMeta removes keys from the _meta of a document, and an empty _meta with the last of them.
// A document without them stays as it is.
func WithoutMeta(doc json.RawMessage, keys ...string) json.RawMessage {
	meta := MetaOf(doc)
	if !HasAny(meta, keys) {
		return doc
	}
	o, err := jsonobj.ParseObject(doc)
	if err != nil {
		return doc
	}
	if meta = meta.Delete(keys...); len(meta) == 0 {
		return o.Delete("_meta").JSON()
	}
	return o.Set("_meta", meta.JSON()).JSON()
}

// WithMeta sets a key in the _meta of a document.
func WithMeta(doc json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	o, err := jsonobj.ParseObject(doc)
	if err != nil {
		return doc
	}
	return o.Set("_meta", o.Object("_meta").Set(key, value).JSON()).JSON()
}

// HasAny reports whether an object has one of the keys.
func HasAny(o jsonobj.Object, keys []string) bool { return slices.ContainsFunc(keys, o.Has) }
