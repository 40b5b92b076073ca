package jobs

// ReadCursor is for tests of what a cursor holds.
var ReadCursor = readCursor
