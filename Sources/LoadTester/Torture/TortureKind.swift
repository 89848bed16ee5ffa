import CTorture

/// A thread or process of a tortured program, by how it waits.
struct TortureKind: Hashable, Sendable {
    let rawValue: Int32

    static let all = (0..<ctorture_kind_count()).map { TortureKind(rawValue: $0) }

    var name: String { ctorture_kind_name(rawValue).map { String(cString: $0) } ?? "unknown" }
    var role: ctorture_role { ctorture_kind_role(rawValue) }
}
