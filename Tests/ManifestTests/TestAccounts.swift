import Glibc
import Launching
import Manifests

/// A machine with three users and three groups.
struct TestAccounts: Accounts {
    var reader: uid_t = 0

    func user(_ name: String) -> Account? {
        let known: [(String, uid_t, String)] = [
            ("root", 0, "/root"), ("alice", 1_001, "/home/alice"), ("bob", 1_002, "/home/bob"),
        ]
        guard let (login, uid, home) = known.first(where: { $0.0 == name || String($0.1) == name }) else {
            return nil
        }
        let identity = ProcessIdentity(user: uid, group: uid, otherGroups: [uid, 44])
        return Account(name: login, identity: identity, home: home, shell: "/bin/sh")
    }

    func group(_ name: String) -> gid_t? {
        ["audio": 29, "video": 44, "alice": 1_001][name] ?? gid_t(name)
    }
}

/// The result of reading a manifest with this text.
func read(_ text: String, reader: uid_t = 0) -> ManifestFile {
    ManifestFile(path: "m.yaml", text: text, accounts: TestAccounts(reader: reader))
}
