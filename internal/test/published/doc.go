// Package published runs tasks that others have published, in their images and unchanged: with
// their own solutions, and with an agent that does nothing.
package published
