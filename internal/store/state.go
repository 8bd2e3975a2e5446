package store

import (
	"encoding/json"
	"errors"
)

// Bucket is a named set of JSON records.
type Bucket struct{}

// Bucket is the bucket of that name, made on the first Put.
func (s *Store) Bucket(name string) *Bucket { return &Bucket{} }

// Get decodes the record of key into v and says whether there is one.
func (b *Bucket) Get(key string, v any) (bool, error) { return false, errors.ErrUnsupported }

// Put keeps v under key; it is on disk when Put returns.
func (b *Bucket) Put(key string, v any) error { return errors.ErrUnsupported }

// Delete removes the record of key, if there is one.
func (b *Bucket) Delete(key string) error { return errors.ErrUnsupported }

// Each calls f for every record, in the order of the keys, on one consistent
// state. f must not use the store.
func (b *Bucket) Each(f func(key string, value json.RawMessage) error) error {
	return errors.ErrUnsupported
}

// CompareAndSet puts next under key if the record is prev now, as JSON. A nil
// prev is no record; a nil next removes it.
func (b *Bucket) CompareAndSet(key string, prev, next any) (bool, error) {
	return false, errors.ErrUnsupported
}
