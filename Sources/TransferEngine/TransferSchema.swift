import GRDB

/// The tables of the store, and their changes from one version to the next.
enum TransferSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { database in
            try database.execute(
                sql: """
                    CREATE TABLE session (
                        id INTEGER PRIMARY KEY AUTOINCREMENT,
                        client TEXT NOT NULL,
                        identifier TEXT NOT NULL,
                        seen INTEGER NOT NULL,
                        UNIQUE (client, identifier));
                    CREATE TABLE task (
                        id INTEGER PRIMARY KEY AUTOINCREMENT,
                        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
                        tag TEXT NOT NULL,
                        request BLOB NOT NULL,
                        state INTEGER NOT NULL,
                        created INTEGER NOT NULL,
                        tried INTEGER NOT NULL DEFAULT 0,
                        total INTEGER,
                        entity_tag TEXT,
                        last_modified TEXT,
                        durable INTEGER NOT NULL DEFAULT 0,
                        outcome BLOB);
                    CREATE INDEX task_session ON task (session);
                    CREATE TABLE boot (id TEXT NOT NULL);
                    """)
        }
        migrator.registerMigration("2") { database in
            // Times were those of the clock on the wall: all begin anew.
            try database.execute(
                sql: """
                    ALTER TABLE session ADD COLUMN ends INTEGER NOT NULL DEFAULT 0;
                    CREATE TABLE elapsed (boot TEXT NOT NULL, uptime INTEGER NOT NULL, elapsed INTEGER NOT NULL);
                    UPDATE session SET seen = 0;
                    UPDATE task SET created = 0;
                    """)
        }
        migrator.registerMigration("3") { database in
            try database.execute(
                sql: """
                    CREATE TABLE issue (
                        client TEXT PRIMARY KEY,
                        begun INTEGER NOT NULL,
                        url TEXT NOT NULL,
                        entity_tag TEXT,
                        last_modified TEXT);
                    """)
        }
        return migrator
    }
}
