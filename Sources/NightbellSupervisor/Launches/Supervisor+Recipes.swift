import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire

/// How clients are started.
extension Supervisor {
    /// How this client can be started again; nil if its Hello may not say so.
    func recipe(_ hello: WireHello, _ identifier: ClientIdentifier, _ connection: Connection) -> LaunchRecipe?
    {
        let credentials = connection.credentials
        if let declaration = launches.declarations[identifier],
            declaration.registration.user == credentials.uid
        {
            return LaunchRecipe(declaration.launch, as: declaration.identity, isRecorded: false)
        }
        guard hello.saysHowToLaunch, !hello.hasProgram, geteuid() == 0 || credentials.uid == geteuid() else {
            return nil
        }
        let problem = LaunchSpecification(hello.launch).problem ?? Confinement.reason(credentials.pid)
        if let problem {
            log(
                .connections, .info, of: credentials.uid,
                "\(identifier) cannot be launched by what it says: \(problem)")
            return nil
        }
        do {
            let groups = try connection.socket.peerGroups()
            guard groups.count <= ProcessIdentity.mostGroups else {
                let problem =
                    "it is in \(groups.count) groups, and \(ProcessIdentity.mostGroups) are the most"
                log(
                    .connections, .notice, of: credentials.uid,
                    "\(identifier) cannot be launched again: \(problem)")
                return nil
            }
            let identity = ProcessIdentity(
                user: credentials.uid, group: credentials.gid, otherGroups: groups)
            var launch = LaunchSpecification(hello.launch)
            launch.limits = try ResourceLimit.differing(of: credentials.pid)
            return LaunchRecipe(launch, as: identity, isRecorded: true)
        } catch {
            log(
                .connections, .notice, of: credentials.uid,
                "\(identifier) cannot be launched again: \(error)")
            return nil
        }
    }

    /// Whether a Hello tells how an ancestor of its process was started, which is a client: a program that a
    /// client starts inherits its environment, with `NIGHTBELL_LAUNCH`. A client that was started in this way
    /// replaces that, so that the nearest ancestors are compared only.
    func isInherited(_ launch: WireLaunchSpecification, _ connection: Connection) -> Bool {
        let said = LaunchSpecification(launch)
        var left = Self.comparedAncestors
        func wasStartedLikeThis(_ client: ClientID) -> Bool {
            guard left > 0, launch.identifier.isEmpty || launch.identifier == identifier(of: client),
                let recorded = launches.recipe(of: client)?.wire
                    ?? self.connection(of: client)?.client?.launch
            else { return false }
            left -= 1
            return LaunchSpecification(recorded) == said
        }
        let pid = connection.credentials.pid
        let ancestor = ProcFS.firstOfAncestry(of: pid) { process in
            process != pid && connections.clients(in: process).contains(where: wasStartedLikeThis)
                ? process : nil
        }
        return ancestor != nil
    }

    /// Decoding how a client was started takes time, and a user decides how many ancestors a process has.
    private static let comparedAncestors = 4

    /// Records that a client is launchable from now on, or launched in another way.
    func setRecipe(_ client: ClientID, _ recipe: LaunchRecipe, state: [UInt8] = []) {
        var recipe = recipe
        if recipe.share(&launches.settings) { journal?.store(recipe.setting) }
        launches.insert(recipe, state: state, of: client)
    }

    /// Called at the end of a turn: the records of clients with changed recipes have been written by then.
    func forgetUnusedSettings() {
        let unused = launches.settings.takeUnused()
        journal?.forget(settings: unused)
    }

    // MARK: Declarations

    func declare(_ declaration: Declaration, _ key: RequestKey, isRequested: Bool) {
        if let problem = reserve(declaration) {
            log(.launches, .error, of: declaration.registration.user, problem)
        }
        var context = RequestContext(declaration: declaration)
        feed(.launch(declaration.registration, isRequested ? key : nil), &context)
    }

    /// How a client without a record was declared for this user; nil: it was not, it has one, or it is about to
    /// reconnect.
    func absentDeclaration(of identifier: ClientIdentifier, _ user: UserID) -> Declaration? {
        guard let declaration = launches.declarations[identifier], declaration.registration.user == user,
            supervision.client(named: identifier) == nil, launches.returning.processes[identifier] == nil
        else { return nil }
        return declaration
    }

    /// Call it before the core learns that something has come for a client: one that was declared gets a
    /// record if it has none, so that it is launched by the same rules as any other.
    func declareAbsent(_ identifier: ClientIdentifier, of user: UserID) {
        guard let declaration = absentDeclaration(of: identifier, user),
            supervision.ownership(of: identifier)?.isQuit != true, reserve(declaration) == nil
        else { return }
        var context = RequestContext(declaration: declaration)
        feed(.declare(declaration.registration, notBefore: mayReturn(identifier)), &context)
    }

    /// Launches a declared client without a record, at once or when its process has not come back in time.
    func launchAbsent(_ declaration: Declaration, isRequested: Bool) {
        guard let until = mayReturn(declaration.registration.identifier) else {
            return declare(declaration, RequestKey(connection: 0, request: 0), isRequested: isRequested)
        }
        var context = RequestContext(declaration: declaration)
        if let problem = reserve(declaration) {
            return log(.launches, .error, of: declaration.registration.user, problem)
        }
        feed(
            .declare(
                declaration.registration, notBefore: until, reasons: isRequested ? .request : .launched),
            &context)
    }

    /// The identifier of a declared client belongs to the user that it is declared for, even if another was
    /// the first to use it.
    ///
    /// - Returns: why that has to wait.
    func reserve(_ declaration: Declaration) -> String? {
        let (identifier, user) = (declaration.registration.identifier, declaration.registration.user)
        if supervision.reserve(identifier, for: user) { return nil }
        let other = supervision.ownership(of: identifier).map { "uid \($0.user)" } ?? "another user"
        return """
            \(identifier) is declared for uid \(user), and a client of \(other) goes by it: quit that \
            (nightbell quit \(identifier)), then launch this one (nightbell launch \(identifier))
            """
    }

    /// The core has registered a declared client.
    func declared(_ client: ClientID, _ context: borrowing RequestContext) {
        guard let declaration = context.declaration else { preconditionFailure("it is being declared") }
        setRecipe(
            client, LaunchRecipe(declaration.launch, as: declaration.identity, isRecorded: false))
        guard var journal, let bytes = recordBytes(of: client) else { return }
        journal.declare(client, Journal.ClientRecord(bytes: bytes), of: supervision)
    }

    // MARK: State

    func storeState(_ client: ClientID, _ state: [UInt8]) {
        launches.setState(state, of: client)
        journal?.storeState(client, state)
    }

    func dropState(_ client: ClientID) {
        launches.setState([], of: client)
        journal?.dropState(client)
    }
}

extension WireHello {
    /// False also if it has no more than the identifier that its user chose (`nightbell run --identifier`).
    var saysHowToLaunch: Bool { hasLaunch && !launch.arguments.isEmpty }
}
