/// The value was nil.
package struct Missing: Error {}

/// As `#require`, for noncopyable types.
package func require<Value: ~Copyable>(_ value: consuming Value?) throws(Missing) -> Value {
    switch consume value {
    case .some(let value): return value
    case .none: throw Missing()
    }
}

/// As a comparison with nil, for noncopyable types.
package func isMissing<Value: ~Copyable>(_ value: consuming Value?) -> Bool {
    switch consume value {
    case .some: false
    case .none: true
    }
}
